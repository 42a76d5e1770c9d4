// One connection: a sequence of requests, each read within limits and answered whole or as a stream.
// Functions run in the connection's strand unless they say otherwise. Included only by http_session*.cpp and
// http_server.cpp, which use Asio.
#pragma once

#include <atomic>
#include <boost/asio.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "server/errors.h"
#include "server/http/client_addresses.h"
#include "server/http/http.h"

namespace coppice {

namespace asio = boost::asio;
using StreamSocket = asio::generic::stream_protocol::socket;  // of TCP, or a Unix socket
using boost::system::error_code;

// What all connections share.
struct HttpShared {
  const HttpOptions& options;
  HttpService& service;
  std::optional<asio::thread_pool> handlers;  // destroyed before the I/O context that their work refers to
  std::atomic<int> connections{0};
  std::atomic<int> answering{0};
  std::atomic<int> handling{0};  // requests that handlers are processing
  std::atomic<int64_t> body_bytes{0};
  std::atomic<int64_t> reply_bytes{0};
  ClientAddresses addresses;

  HttpShared(const HttpOptions& o, HttpService& s)
      : options(o),
        service(s),
        handlers(std::in_place, static_cast<size_t>(o.handler_threads)),
        addresses(o.max_connections_per_address) {}
};

// The bytes of a reply that is being made, as HttpShared::reply_bytes counts them (Exchange::Hold). For one
// thread at a time.
class HeldBytes {
 public:
  explicit HeldBytes(HttpShared& shared) : shared_(&shared) {}
  HeldBytes(HeldBytes&& other) noexcept : shared_(other.shared_), bytes_(other.Take()) {}
  HeldBytes& operator=(HeldBytes&&) = delete;
  ~HeldBytes() {
    if (bytes_ != 0) shared_->reply_bytes -= bytes_;  // else the server may be gone
  }

  // Counts `bytes` in place of what it counted. Returns false, and changes nothing, if there is no room.
  bool Set(int64_t bytes);
  // What it counts; the caller counts it from here on.
  int64_t Take() { return std::exchange(bytes_, 0); }
  int64_t bytes() const { return bytes_; }

 private:
  HttpShared* shared_;
  int64_t bytes_ = 0;
};

class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  // `counted`: of shared.addresses.
  HttpSession(StreamSocket socket, HttpShared& shared, std::shared_ptr<void> counted);
  ~HttpSession();

  void Start();
  // Thread-safe. Does not throw: without memory to schedule it, the connection stays open until its client
  // disconnects.
  void PostClose() noexcept {
    try {
      Post([](HttpSession& self) { self.Close(); });
    } catch (const std::exception&) {
    }
  }
  // Runs `step` in the strand. If it runs out of memory the connection is closed, or the client would wait
  // forever.
  template <typename F>
  void Post(F step) {
    asio::dispatch(socket_.get_executor(), [self = shared_from_this(), f = std::move(step)]() mutable {
      self->Step([&] { f(*self); });
    });
  }

  // For exchange number `turn`; ignored if that exchange has ended. `held`: of this reply.
  void Reply(uint64_t turn, HttpReply reply, HeldBytes held);
  void StartPings(uint64_t turn, std::chrono::milliseconds ping);
  void Send(uint64_t turn, const std::string& events);
  void End(uint64_t turn);
  void OnGone(uint64_t turn, std::function<void()> callback);
  void Note(uint64_t turn, LogNote note);

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  void ReplyAtOnce(HttpReply reply) { Reply(turn_, std::move(reply), HeldBytes(shared_)); }
  void ReadHead();
  void ParseHead();
  void OnHead(error_code ec, bool folded);
  void ReadBody(HttpRequest request);
  void OnBody(error_code ec, HttpRequest request);
  void Dispatch(HttpRequest request);
  void ReadBodyPart(HttpRequest request);
  bool ReserveBody();
  void ReleaseBody();
  void RefuseForMemory();
  void RefuseBadHttp(error_code ec);
  void Watch();
  void OnWatch(error_code ec, size_t bytes);
  void WatchFullBuffer();
  void ClientLeft();

  void WriteHead(const HttpReply& reply, bool stream);
  void Push(std::string bytes, int64_t counted = 0);
  void Write();
  void OnWrite(error_code ec, size_t bytes);
  void Finish();
  void OnFinished();
  void Linger();
  void ArmPing();
  bool IsOpen(uint64_t turn) const { return turn == turn_ && busy_ && !finished_ && !closed_; }
  template <typename F>
  void Step(F&& step) {
    try {
      step();
    } catch (const std::exception&) {
      Close();
    }
  }
  void Arm(asio::steady_timer& timer, std::chrono::milliseconds limit);
  std::chrono::milliseconds Earned(int64_t bytes) const;
  void CloseAtDeadline(asio::steady_timer& timer);
  void Close();
  void BeginEntry(std::string method, std::string path);
  void LogRequest(bool whole);

  StreamSocket socket_;
  HttpShared& shared_;
  std::shared_ptr<void> counted_;
  asio::steady_timer read_deadline_;
  asio::steady_timer write_deadline_;
  asio::steady_timer ping_timer_;
  asio::steady_timer full_timer_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  int64_t reserved_ = 0;  // this request's part of shared_.body_bytes
  std::chrono::steady_clock::time_point body_began_;

  uint64_t turn_ = 0;         // counts requests
  bool busy_ = false;         // a request is being answered
  bool started_ = false;      // bytes of the answer were written
  bool stream_ = false;       // the answer is a stream
  bool finished_ = false;     // the whole answer was queued for writing
  bool watching_ = false;     // a pending read detects a disconnect
  bool lingering_ = false;    // the answer was sent; further input is discarded
  bool client_left_ = false;  // the client has closed; nothing more can be read
  bool closed_ = false;
  bool keep_alive_ = false;
  bool http_1_0_ = false;
  bool head_only_ = false;
  HttpHeaders more_headers_;  // of the current request's reply
  ErrorForm errors_;          // the current request's
  std::function<void()> on_gone_;
  std::shared_ptr<std::atomic<bool>> cancelled_;  // the current request's

  std::deque<std::string> unsent_;
  size_t unsent_bytes_ = 0;
  size_t sent_of_first_ = 0;
  std::chrono::steady_clock::time_point unsent_since_;
  int64_t sent_since_ = 0;
  bool writing_ = false;
  HttpLogEntry entry_;  // of the current request
  std::chrono::steady_clock::time_point entry_began_;
  bool quiet_ = true;  // nothing was written since the last ping
  std::chrono::milliseconds ping_{0};
};

}  // namespace coppice
