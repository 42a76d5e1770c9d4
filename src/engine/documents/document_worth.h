// What an entry of the document cache is worth when one must leave.
//
// From the lowest: entries that were used once (titles, summaries, sub-agents), the least recently used
// first; conversations, the same; entries whose lifetime a request has set and has not ended. An entry is a
// conversation's if a later prompt began with it: requests that come once do not evict it. A conversation
// that nobody continues ages: it is worth as much as others once the cache could have been filled eight times
// since its last use.
//
// Where all others are conversations, a new one would leave at once, at every turn. So the cache remembers
// the beginnings of entries that left (GoneEntries), and a prompt that continues one of these is a
// conversation's from the first.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>

#include "model/prefix.h"

namespace coppice {

using WorthClock = std::chrono::steady_clock;

struct DocumentWorth {
  uint64_t used = 0;             // the number of the last use
  double filled = 0;             // how often the cache could have been filled until then
  bool is_conversation = false;  // a later prompt began with it
  uint64_t conversation = 0;     // PrefixHint::conversation
  bool is_latest = false;        // the latest entry of that conversation
  WorthClock::time_point kept_until = {};
};

// Whether a prompt that has `common` tokens in common with an entry begins with it, and goes on.
bool Follows(std::span<const int32_t> prompt, std::span<const int32_t> entry, int64_t common);

class DocumentWorths {
 public:
  explicit DocumentWorths(std::function<WorthClock::time_point()> now) : now_(std::move(now)) {}

  uint64_t uses() const { return uses_; }
  void Use(DocumentWorth& worth);
  // A prompt with `hint` begins with the entry.
  void Continue(DocumentWorth& worth, const PrefixHint& hint) const;
  // The entry of `worth` begins with that of `old`.
  void Follow(DocumentWorth& worth, const DocumentWorth& old, const PrefixHint& hint) const;
  // What `hint` asks for.
  void Keep(DocumentWorth& worth, const PrefixHint& hint) const;
  // A new entry takes `share` of the cache.
  void CountNew(double share) { filled_ += share; }
  // Whether the one leaves before the other.
  bool IsLess(const DocumentWorth& a, const DocumentWorth& b) const;

 private:
  int RankOf(const DocumentWorth& worth) const;

  std::function<WorthClock::time_point()> now_;
  uint64_t uses_ = 0;
  double filled_ = 0;
};

}  // namespace coppice
