#include "engine/documents/document_worth.h"

#include <algorithm>
#include <utility>

#include "engine/documents/common_prefix.h"

namespace coppice {

namespace {

constexpr double kMostFillings = 8;

}  // namespace

bool Follows(std::span<const int32_t> prompt, std::span<const int32_t> entry, int64_t common) {
  return prompt.size() > entry.size() && common >= std::ssize(WithoutAnswerHead(entry));
}

void DocumentWorths::Use(DocumentWorth& worth) {
  worth.used = ++uses_;
  worth.filled = filled_;
}

void DocumentWorths::Continue(DocumentWorth& worth, const PrefixHint& hint) const {
  if (hint.is_own_read) return;
  worth.is_conversation = true;
  Keep(worth, hint);
}

void DocumentWorths::Follow(DocumentWorth& worth, const DocumentWorth& old, const PrefixHint& hint) const {
  worth.is_conversation |= old.is_conversation || !hint.is_own_read;
  worth.kept_until = std::max(worth.kept_until, old.kept_until);
  if (worth.conversation != 0 || old.conversation == 0) return;
  worth.conversation = old.conversation;
  worth.is_latest = old.is_latest;
}

void DocumentWorths::Keep(DocumentWorth& worth, const PrefixHint& hint) const {
  if (hint.lifetime.count() > 0) worth.kept_until = std::max(worth.kept_until, now_() + hint.lifetime);
  if (hint.conversation == 0) return;
  worth.conversation = hint.conversation;
  worth.is_latest = true;
}

int DocumentWorths::RankOf(const DocumentWorth& worth) const {
  if (worth.kept_until != WorthClock::time_point() && now_() < worth.kept_until) return 2;
  const bool is_fresh = filled_ - worth.filled <= kMostFillings;
  return (worth.is_conversation || worth.is_latest) && is_fresh ? 1 : 0;
}

bool DocumentWorths::IsLess(const DocumentWorth& a, const DocumentWorth& b) const {
  return std::pair(RankOf(a), a.used) < std::pair(RankOf(b), b.used);
}

}  // namespace coppice
