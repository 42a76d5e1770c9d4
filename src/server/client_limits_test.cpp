#include "server/client_limits.h"

#include <gtest/gtest.h>

#include <optional>

#include "server/errors.h"

namespace coppice {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

const ClientLimits::Clock::time_point kNoon{hours(24 * 20'000 + 12)};

// The seconds after which to try again; nothing if the request is admitted.
std::optional<int64_t> Refusal(ClientLimits& limits, uint64_t client, ClientLimits::Clock::time_point now) {
  try {
    limits.Admit(client, now);
  } catch (const HttpError& error) {
    EXPECT_EQ(error.fault().status, 429);
    return error.fault().retry_after;
  }
  return std::nullopt;
}

TEST(ClientLimits, RequestsAtOnce) {
  ClientLimits limits({{1, {.concurrent = 2}}, {2, {.concurrent = 1}}});
  std::shared_ptr<void> first = limits.Admit(1, kNoon);
  const std::shared_ptr<void> second = limits.Admit(1, kNoon);
  EXPECT_EQ(Refusal(limits, 1, kNoon), 1);
  EXPECT_EQ(Refusal(limits, 2, kNoon), std::nullopt);  // each key for itself
  EXPECT_EQ(Refusal(limits, 2, kNoon), std::nullopt);  // the one before has ended
  EXPECT_EQ(Refusal(limits, 3, kNoon), std::nullopt);  // no limit
  first.reset();
  EXPECT_EQ(Refusal(limits, 1, kNoon), std::nullopt);
}

TEST(ClientLimits, RequestsAMinute) {
  ClientLimits limits({{1, {.per_minute = 2}}});
  EXPECT_EQ(Refusal(limits, 1, kNoon), std::nullopt);
  EXPECT_EQ(Refusal(limits, 1, kNoon + seconds(20)), std::nullopt);
  EXPECT_EQ(Refusal(limits, 1, kNoon + seconds(59)), 1);
  EXPECT_EQ(Refusal(limits, 1, kNoon + seconds(60)), std::nullopt);
  EXPECT_EQ(Refusal(limits, 1, kNoon + seconds(61)), 19);
}

TEST(ClientLimits, TokensADay) {
  ClientLimits limits({{1, {.tokens_per_day = 100}}});
  limits.CountTokens(1, 99, kNoon);
  EXPECT_EQ(Refusal(limits, 1, kNoon), std::nullopt);
  limits.CountTokens(1, 50, kNoon);  // the request that was admitted goes on
  EXPECT_EQ(Refusal(limits, 1, kNoon + hours(1)), 11 * 3600);
  EXPECT_EQ(Refusal(limits, 1, kNoon + hours(12)), std::nullopt);
  limits.CountTokens(1, 99, kNoon + hours(12));
  EXPECT_EQ(Refusal(limits, 1, kNoon + hours(13)), std::nullopt);
}

}  // namespace
}  // namespace coppice
