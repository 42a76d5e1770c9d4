#include "server/turn_order.h"

#include <algorithm>

#include "base/check.h"

namespace coppice {

namespace {
constexpr double kAging = 0.25;
constexpr double kRecentTokens = 65536;
// Tokens get 1 / (1 + weight) of the time.
constexpr double kLeastWeight = 2;
constexpr double kMostWeight = 4;
}  // namespace

void TurnOrder::Count(bool generates, double seconds, double tokens) {
  used_[generates] += generates ? seconds * weight_ : seconds;
  if (generates || tokens <= 0) return;
  seconds_ += seconds;
  tokens_ += tokens;
  if (tokens_ > kRecentTokens) {
    seconds_ /= 2;
    tokens_ /= 2;
  }
}

double TurnOrder::Rank(const Contender& prompt) const {
  const double left = tokens_ > 0 ? prompt.tokens_left * seconds_ / tokens_ : 0;
  return left - kAging * prompt.waited;
}

size_t TurnOrder::Next(std::span<const Contender> contenders) {
  COPPICE_CHECK(!contenders.empty());
  constexpr size_t kNone = static_cast<size_t>(-1);
  size_t token = kNone;
  size_t prompt = kNone;
  double generating = 0;
  for (size_t i = 0; i < contenders.size(); ++i) {
    const Contender& c = contenders[i];
    if (c.generates) {
      ++generating;
      if (token == kNone || c.last_turn < contenders[token].last_turn) token = i;
    } else {
      if (prompt == kNone || Rank(c) < Rank(contenders[prompt])) prompt = i;
    }
  }
  if (token != kNone && prompt != kNone) {
    const double waiting = static_cast<double>(contenders.size()) - generating;
    weight_ = std::clamp(1 + waiting / generating, kLeastWeight, kMostWeight);
    return used_[true] <= used_[false] ? token : prompt;
  }
  // A kind gets no compensation for time in which it had no work.
  used_[false] = used_[true] = 0;
  return token != kNone ? token : prompt;
}

}  // namespace coppice
