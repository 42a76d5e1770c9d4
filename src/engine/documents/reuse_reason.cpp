#include "engine/documents/reuse_reason.h"

#include <algorithm>
#include <utility>

#include "engine/documents/common_prefix.h"

namespace coppice {

namespace {

// An answer may come back without its last tokens: white space, or part of a stop text.
constexpr int64_t kAnswerTail = 4;

bool GoesOn(const EarlierPrompt& earlier, int64_t common) {
  return common >= std::max(earlier.prompt_tokens, earlier.size() - kAnswerTail);
}

struct Turn {
  std::span<const int32_t> tokens;
  int64_t cached;
  int64_t common;  // with the earlier prompt and its answer
  const PrefixOwner& owner;
};

// The prompt shares tokens with an earlier one that no entry gave: `missed`. Says why.
void SayMissing(const Turn& turn, int64_t missed, const DocumentCache& cache, ReuseCause& cause) {
  const EarlierPrompt& earlier = *cause.earlier;
  const int64_t above = turn.cached + missed / 2;
  if (cause.entry && cause.entry->shared > above) {
    cause.reason = ReuseReason::kPruned;
    return;
  }
  cause.gone = cache.WasHeld(*earlier.tokens, above, turn.owner);
  if (!cause.gone) cause.gone = cache.WasHeld(turn.tokens, above, turn.owner);
  if (cause.gone || std::min(earlier.kept, turn.common) > above) {
    cause.reason = ReuseReason::kEvicted;
    return;
  }
  cause.reason = ReuseReason::kNotKept;
  cause.why = earlier.why;
  const int64_t had = std::max(turn.cached, earlier.kept);
  if (turn.common > earlier.prompt_tokens && IsMost(had, earlier.prompt_tokens)) cause.why = NotKept::kAnswer;
  if (cause.why == NotKept::kKept) cause.why = NotKept::kFewNew;
}

}  // namespace

ReuseCause CauseOf(std::span<const int32_t> tokens, int64_t cached, PromptHistory::Comparison compared,
                   const DocumentCache& cache, const PrefixOwner& owner) {
  ReuseCause cause;
  if (const DocumentCache::Held held = cache.MostHeld(tokens, owner); held.shared > 0) cause.entry = held;
  const int64_t held = cause.entry ? cause.entry->shared : 0;
  cause.shared = std::max({compared.shared, cached, held});
  const int64_t most = std::ssize(tokens) - 1;  // the last token is always computed
  if (!compared.earlier) {
    const bool is_missed =
        held >= DocumentCacheOptions().least_taken && !IsMost(cached, std::min(held, most));
    cause.reason = is_missed    ? ReuseReason::kPruned
                   : cached > 0 ? ReuseReason::kContinued
                                : ReuseReason::kFirst;
    return cause;
  }
  cause.earlier = std::move(compared.earlier);
  const EarlierPrompt& earlier = *cause.earlier;
  const int64_t common = compared.common;
  if (common < earlier.size() && common <= most) cause.differs_at = common;
  const bool differs = cause.differs_at && !GoesOn(earlier, common);
  // What each of the two costs: tokens that differ, and tokens that no entry gave.
  const int64_t apart = differs ? std::min(earlier.size(), most) - common : 0;
  const int64_t missed = std::max<int64_t>(std::min(common, most) - cached, 0);
  const bool is_missed = !IsMost(cached, std::min(common, most));
  if (is_missed && missed > apart) {
    SayMissing({tokens, cached, common, owner}, missed, cache, cause);
  } else {
    cause.reason = differs ? ReuseReason::kDiffers : ReuseReason::kContinued;
  }
  return cause;
}

}  // namespace coppice
