// Rights and limits of API keys: concurrent requests, requests per minute, tokens per day.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

namespace coppice {

// What a key may do.
struct ClientLimit {  // 0: no limit
  int64_t concurrent = 0;
  int64_t per_minute = 0;
  int64_t tokens_per_day = 0;  // of prompts and answers, by UTC's days
  bool all_metrics = false;    // of several keys: may see the metrics of all
};

// Thread-safe. Clients without a limit are not counted.
class ClientLimits {
 public:
  using Clock = std::chrono::system_clock;

  // `limits` are keyed by Access::KeyOf().
  explicit ClientLimits(const std::map<uint64_t, ClientLimit>& limits);
  ClientLimits(const ClientLimits&) = delete;
  ClientLimits& operator=(const ClientLimits&) = delete;

  // Begins a request; destroying the returned object ends it. The returned object must not outlive this one.
  // Throws HttpError 429 with the time to try again.
  std::shared_ptr<void> Admit(uint64_t client, Clock::time_point now);
  bool SeesAllMetrics(uint64_t client) const;
  // A request that was admitted may go beyond the day's tokens; the next one is refused.
  void CountTokens(uint64_t client, int64_t tokens, Clock::time_point now);

 private:
  struct Client {
    ClientLimit limit;
    int64_t running = 0;
    std::deque<Clock::time_point> begun;  // in the last minute
    int64_t day = 0;
    int64_t tokens = 0;  // of that day
  };

  struct Admission;

  std::mutex mutex_;
  std::map<uint64_t, Client> clients_;  // the keys never change
};

}  // namespace coppice
