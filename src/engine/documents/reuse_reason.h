// Why a prompt reused as much of the document cache as it did.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "engine/documents/document_cache.h"
#include "engine/documents/prompt_history.h"

namespace coppice {

enum class ReuseReason {
  kOff,        // the cache, or this request's use of it, is off
  kFirst,      // no earlier prompt of this owner begins like this one
  kContinued,  // nearly everything that this prompt shares with an earlier one was reused
  kDiffers,    // the earlier prompt or its answer differs from some token on
  kEvicted,    // the entry is gone
  kNotKept,    // there never was one
  kPruned,     // there is one, but not at a point that this run may use
};
inline constexpr std::array<std::string_view, 7> kReuseReasons = {
    "off", "first", "continued", "differs", "evicted", "not_kept", "pruned"};
inline std::string_view NameOf(ReuseReason reason) { return kReuseReasons[static_cast<size_t>(reason)]; }

struct ReuseCause {
  ReuseReason reason = ReuseReason::kOff;
  int64_t shared = 0;                      // as PromptHistory::Comparison, and with entries of the cache
  std::optional<int64_t> differs_at = {};  // the first token that is not the earlier prompt's; counted from 0
  std::optional<EarlierPrompt> earlier = {};
  std::optional<DocumentCache::Held> entry = {};  // the one with the longest beginning in common
  std::optional<GoneEntries::Match> gone = {};    // for kEvicted, if the cache remembers
  NotKept why = NotKept::kKept;                   // for kNotKept
};

// Call it when the prompt has taken over `cached` tokens from `cache`, before it leaves an entry of its own.
ReuseCause CauseOf(std::span<const int32_t> tokens, int64_t cached, PromptHistory::Comparison compared,
                   const DocumentCache& cache, const PrefixOwner& owner);

}  // namespace coppice
