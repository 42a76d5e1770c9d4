#include "server/client_limits.h"

#include <fmt/format.h>

#include "server/errors.h"

namespace coppice {

namespace {

using std::chrono::seconds;

constexpr seconds kMinute{60};
constexpr seconds kDay{24 * 3600};

seconds SinceEpoch(ClientLimits::Clock::time_point time) {
  return std::chrono::duration_cast<seconds>(time.time_since_epoch());
}

HttpError TooMany(const std::string& what, seconds retry_after) {
  HttpFault fault{429, "rate_limit_error", what};
  fault.retry_after = retry_after.count();
  return HttpError(fault);
}

}  // namespace

// Constructed before the mutex is locked, because its destructor locks the mutex.
struct ClientLimits::Admission {
  Admission(ClientLimits& all, Client& one) : limits(all), client(one) {}
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;
  ~Admission() {
    if (!is_counted) return;
    const std::lock_guard lock(limits.mutex_);
    --client.running;
  }

  ClientLimits& limits;
  Client& client;
  bool is_counted = false;
};

ClientLimits::ClientLimits(const std::map<uint64_t, ClientLimit>& limits) {
  for (const auto& [client, limit] : limits) clients_[client].limit = limit;
}

std::shared_ptr<void> ClientLimits::Admit(uint64_t client, Clock::time_point now) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return nullptr;
  Client& c = found->second;
  auto admission = std::make_shared<Admission>(*this, c);
  const std::lock_guard lock(mutex_);
  while (!c.begun.empty() && c.begun.front() <= now - kMinute) c.begun.pop_front();
  if (c.limit.concurrent > 0 && c.running >= c.limit.concurrent)
    throw TooMany(fmt::format("this API key has {} requests in progress, its limit", c.running), seconds(1));
  if (c.limit.per_minute > 0 && static_cast<int64_t>(c.begun.size()) >= c.limit.per_minute) {
    throw TooMany(fmt::format("this API key began {} requests in the last minute, its limit", c.begun.size()),
                  std::chrono::ceil<seconds>(c.begun.front() + kMinute - now));
  }
  if (c.limit.tokens_per_day > 0 && c.day == SinceEpoch(now) / kDay && c.tokens >= c.limit.tokens_per_day) {
    throw TooMany(fmt::format("this API key has used {} tokens today; its limit is {}", c.tokens,
                              c.limit.tokens_per_day),
                  kDay - SinceEpoch(now) % kDay);
  }
  if (c.limit.per_minute > 0) c.begun.push_back(now);
  ++c.running;
  admission->is_counted = true;
  return admission;
}

void ClientLimits::CountTokens(uint64_t client, int64_t tokens, Clock::time_point now) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return;
  Client& c = found->second;
  const std::lock_guard lock(mutex_);
  const int64_t day = SinceEpoch(now) / kDay;
  if (c.day != day) c.tokens = 0;
  c.day = day;
  c.tokens += tokens;
}

bool ClientLimits::SeesAllMetrics(uint64_t client) const {
  const auto found = clients_.find(client);
  return found != clients_.end() && found->second.limit.all_metrics;
}

}  // namespace coppice
