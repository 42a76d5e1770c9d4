#include "server/local_exchange.h"

#include <utility>

#include "server/http/sse.h"

namespace coppice {

void LocalExchange::Reply(HttpReply reply) {
  const std::lock_guard lock(mutex_);
  if (ended_) return;
  if (!streams_) {
    status_ = reply.status;
    bytes_ += reply.body;
  } else {
    bytes_ += reply.last_events.empty() ? SseEventOf(reply.body) : reply.last_events;
  }
  ended_ = true;
  came_.notify_all();
}

void LocalExchange::Send(std::string events) {
  const std::lock_guard lock(mutex_);
  if (ended_) return;
  streams_ = true;
  bytes_ += events;
  came_.notify_all();
}

void LocalExchange::End() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  came_.notify_all();
}

void LocalExchange::OnGone(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!*cancelled_) {
      gone_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

LocalExchange::Piece LocalExchange::Take(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  came_.wait_for(lock, limit, [this] { return ended_ || !bytes_.empty(); });
  return {std::exchange(bytes_, {}), ended_};
}

void LocalExchange::Cancel() {
  std::vector<std::function<void()>> gone;
  {
    const std::lock_guard lock(mutex_);
    if (ended_ || cancelled_->exchange(true)) return;
    ended_ = true;
    status_ = 499;
    bytes_.clear();
    gone = std::move(gone_);
    came_.notify_all();
  }
  for (const auto& callback : gone) callback();
}

int LocalExchange::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

}  // namespace coppice
