// HTTP as the routes see it, without sockets: a request comes in, an answer or a stream of events goes out.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/http/log_note.h"

namespace coppice {

struct HttpRequest {
  std::string method;                          // "GET"
  std::string path;                            // "/v1/models", without the query
  std::string query;                           // what follows ?
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // empty while only the head was read
  std::chrono::steady_clock::time_point arrived = {};
  std::shared_ptr<void> admission = {};  // set by the service: the request counts until this is released
  std::shared_ptr<const std::atomic<bool>> cancelled =
      {};               // set when the client disconnects or the server stops
  std::string id = {};  // of its own, to find it in the log: "req_" and 16 digits

  // "" where the request has no such header.
  const std::string& Header(const std::string& name) const;
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpReply {
  int status = 200;
  std::string body;
  std::string type = "application/json; charset=utf-8";
  HttpHeaders headers = {};
  std::string last_events = {};  // in place of the body, if a stream has begun; empty: the body as an event
};

// The reply channel of one request. Thread-safe; calls return at once, and do nothing after the end of the
// reply or after the client disconnected.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // Sends the whole answer. If a stream has begun already (a ping came first), the body becomes its last
  // event.
  virtual void Reply(HttpReply reply) = 0;
  // The answer may become a stream from here on: after each `ping` without output, the server sends a comment
  // to show the client that it is alive.
  virtual void StartPings(std::chrono::milliseconds ping) = 0;
  // Sends events (sse.h); the first begins the stream.
  virtual void Send(std::string events) = 0;
  virtual void End() = 0;
  // Counts `bytes` as the memory of a reply that is being made, in place of what the last call counted, until
  // Reply() or the exchange's end. Returns false, and counts what it did before, if `bytes` is above 256 KiB
  // and the replies of all clients would then take more than HttpOptions::max_replies_bytes: the caller
  // should refuse the request. One caller at a time. Reply() then sends a body of at most `bytes` bytes for
  // certain.
  virtual bool Hold(int64_t bytes) = 0;
  // `callback` runs once if the client disconnects before the end; at once if it already has. It must be
  // quick.
  virtual void OnGone(std::function<void()> callback) = 0;
  // Adds to what the log says of the request.
  virtual void Note(LogNote note) = 0;
};

// The outcome of one request. `note` joins those of Exchange::Note.
struct HttpLogEntry {
  std::string method;  // empty if the input was no request
  std::string path;
  std::string id = {};  // HttpRequest::id
  int status = 0;       // 0: the client disconnected before the reply
  std::chrono::milliseconds took{0};
  int64_t sent = 0;    // bytes of the reply, its head included
  bool whole = false;  // the reply was sent to its end
  LogNote note = {};
};

class HttpService {
 public:
  virtual ~HttpService() = default;
  // Called once per request, after its reply or its client's disconnect. Must be quick, and must not throw.
  virtual void Log(const HttpLogEntry&) {}
  // More headers for whatever reply this request gets.
  virtual HttpHeaders HeadersFor(const HttpRequest&) { return {}; }
  // Called with a request's head before the body is read. A returned reply refuses the request.
  virtual std::optional<HttpReply> Refuse(const HttpRequest& head) = 0;
  // Whether Handle() returns at once for this request; other requests go to the pool of handler threads.
  virtual bool IsQuick(const HttpRequest& head) = 0;
  // Answers now or later, through `exchange`. Must return soon after `request.cancelled` is set, and must not
  // throw.
  virtual void Handle(HttpRequest request, std::shared_ptr<Exchange> exchange) = 0;
};

struct HttpOptions {
  std::string host = "127.0.0.1";                 // or "unix:" and the path of a socket
  int port = 8080;                                // 0: any that is free; of no meaning for a Unix socket
  int threads = 2;                                // threads that read and write
  int handler_threads = 2;                        // threads for requests that are not quick
  int max_connections = 4096;                     // further connections are refused
  int max_connections_per_address = 1024;         // ClientAddresses
  int64_t max_body_bytes = 16 << 20;              // for one request
  int64_t max_bodies_bytes = int64_t{256} << 20;  // for all bodies that were read and are not handled yet
  int64_t max_unsent_bytes = int64_t{16}
                             << 20;  // of one client that does not read, beyond its answer's first piece
  int64_t max_replies_bytes = int64_t{256} << 20;  // of replies that are made, or that wait to be read
  std::chrono::milliseconds idle{60'000};          // for a request's head, from the end of the one before
  std::chrono::milliseconds timeout{600'000};      // for a whole body
  // Of a body that is sent, and of a reply that is read: slower clients are disconnected, though not before
  // `idle` and `timeout`.
  int64_t min_bytes_per_second = 4096;
};

// The path of a host that begins with "unix:", otherwise empty.
std::string UnixSocketPath(const std::string& host);
// Removes the socket at `path`, of at most 107 bytes, if nobody listens on it: a killed server left it. Other
// files stay.
void RemoveAbandonedSocket(const std::string& path);
// Whether only this machine can reach `host`. Throws FieldError for "host".
bool IsLocal(const std::string& host);

class HttpServer {
 public:
  // Listens at once. Throws Error, naming host and port, if it cannot. `service` outlives the server. A Unix
  // socket gets mode 0660, replaces one on which nobody listens, and is removed with the server.
  HttpServer(const HttpOptions& options, HttpService& service);
  ~HttpServer();  // Stop(), and waits for every handler
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  int connections() const;
  int answering() const;  // requests without a whole reply
  // Waits until there are none, at most for `limit`.
  void WaitForReplies(std::chrono::milliseconds limit) const;
  // Stops accepting, waits up to `grace` for replies in progress, then closes all connections and joins the
  // threads. Returns false, and joins nothing, if a handler goes on for a second after its request was
  // cancelled. May be called again.
  bool Stop(std::chrono::milliseconds grace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace coppice
