#include "engine/documents/gone_entries.h"

#include "base/checksum.h"
#include "engine/documents/common_prefix.h"

namespace coppice {

void GoneEntries::Note(const PrefixOwner& owner, std::span<const int32_t> tokens, Gone why) noexcept {
  const auto beginning = WithoutAnswerHead(tokens);
  entries_[next_] = {owner, std::ssize(tokens), beginning.size(), ChecksumOf(std::as_bytes(beginning)), why};
  next_ = (next_ + 1) % entries_.size();
}

std::optional<GoneEntries::Match> GoneEntries::Longest(std::span<const int32_t> tokens, int64_t above,
                                                       const PrefixOwner& owner) const {
  std::optional<Match> longest;
  for (size_t i = 1; i <= entries_.size(); ++i) {  // the last one first: of equal ones it says why
    const Entry& entry = entries_[(next_ + entries_.size() - i) % entries_.size()];
    if (entry.tokens <= above || entry.owner != owner) continue;
    if (entry.beginning > tokens.size()) continue;
    if (longest && entry.tokens <= longest->tokens) continue;
    if (ChecksumOf(std::as_bytes(tokens.first(entry.beginning))) == entry.checksum)
      longest = {entry.why, entry.tokens};
  }
  return longest;
}

}  // namespace coppice
