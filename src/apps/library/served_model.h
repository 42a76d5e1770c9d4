// A model with the server's routes, in this process and without a socket: what the library's C and C++
// functions share.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "server/kv_events.h"
#include "server/server.h"

namespace coppice {

class ServedModel {
 public:
  // `options` are those of `coppice serve`. Throws Error, naming the option or the file.
  explicit ServedModel(std::span<const std::string> options);
  ~ServedModel();  // cancels what is being computed, and waits until it has ended
  ServedModel(const ServedModel&) = delete;
  ServedModel& operator=(const ServedModel&) = delete;

  // Gets bytes of the reply, or none every 50 ms; runs on the caller's thread. Returns false to cancel the
  // request.
  using Receive = std::function<bool(std::string_view bytes)>;
  // Returns the HTTP status once the reply has ended, 499 if `receive` cancelled it. Thread-safe.
  int Call(const std::string& method, const std::string& path, std::string body, const Receive& receive);
  // Serves over HTTP as well. Returns the port; a second call, that of the first. Thread-safe. Throws Error.
  int Listen(int port);

 private:
  const pid_t owner_;
  std::mutex listen_mutex_;
  int port_ = 0;
  std::shared_ptr<KvEvents> events_;
  std::unique_ptr<Server> server_;
};

}  // namespace coppice
