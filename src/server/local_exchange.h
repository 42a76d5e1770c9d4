// The reply channel of a request that comes from this process, without a socket.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/http/http.h"

namespace coppice {

class LocalExchange final : public Exchange {
 public:
  void Reply(HttpReply reply) override;
  void StartPings(std::chrono::milliseconds) override {}  // nobody here needs a sign of life
  void Send(std::string events) override;
  void End() override;
  bool Hold(int64_t) override { return true; }  // the limits of HttpOptions protect from strangers
  void OnGone(std::function<void()> callback) override;
  void Note(LogNote) override {}

  struct Piece {
    std::string bytes;
    bool ended = false;  // nothing comes behind `bytes`
  };
  // What has come since the last call; waits up to `limit` for something.
  Piece Take(std::chrono::milliseconds limit);
  // Ends the request, as a client that disconnects does.
  void Cancel();
  int status() const;  // once the reply has ended
  // For HttpRequest::cancelled.
  std::shared_ptr<const std::atomic<bool>> cancelled() const { return cancelled_; }

 private:
  mutable std::mutex mutex_;
  std::condition_variable came_;
  std::string bytes_;
  bool streams_ = false;
  bool ended_ = false;
  int status_ = 200;
  std::vector<std::function<void()>> gone_;
  const std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace coppice
