#include "engine/prompt_lookup.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace coppice {

namespace {

// Tokens with other ids may have the same key: a proposal need not be right.
uint64_t KeyOf(std::span<const int32_t> tokens) {
  uint64_t key = 0;
  for (const int32_t id : tokens) key = (key ^ static_cast<uint32_t>(id)) * 0x9e3779b97f4a7c15;
  return key;
}

// A miss costs a step with several rows, and misses come in runs.
constexpr int64_t kMostPauses = 32;

constexpr int kMostPlaces = 64;   // places that are compared: common words stand in many
constexpr int64_t kLongest = 16;  // tokens that are compared at each

}  // namespace

std::vector<int32_t> PromptLookup::Propose(std::span<const int32_t> history, int64_t room) {
  last_ = 0;
  const int64_t count = std::ssize(history);
  if (most_ == 0 || count < kMatch) return {};
  const auto key_before = [&](int64_t end) {
    return KeyOf(history.subspan(static_cast<size_t>(end - kMatch), kMatch));
  };
  // The history's own end is not indexed yet, so it does not find itself.
  earlier_.resize(static_cast<size_t>(count), 0);
  for (indexed_ = std::max(indexed_, kMatch); indexed_ < count; ++indexed_)
    earlier_[static_cast<size_t>(indexed_)] = std::exchange(after_[key_before(indexed_)], indexed_);
  if (pauses_ > 0) {
    --pauses_;
    return {};
  }
  const auto found = after_.find(key_before(count));
  if (found == after_.end()) return {};
  const Place place = Longest(history, found->second);
  // The more tokens agree, the more the text that follows can be trusted.
  const int64_t width = std::min(most_, std::max(width_, place.equal - 1));
  last_ = std::max<int64_t>(0, std::min(width, room));
  proposed_ += last_;
  std::vector<int32_t> proposal;
  for (int64_t i = 0; i < last_; ++i) {
    const int64_t from = place.end + i;  // behind the history's end the proposal repeats itself
    proposal.push_back(from < count ? history[static_cast<size_t>(from)]
                                    : proposal[static_cast<size_t>(from - count)]);
  }
  return proposal;
}

PromptLookup::Place PromptLookup::Longest(std::span<const int32_t> history, int64_t end) const {
  Place best;
  for (int tried = 0; end > 0 && tried < kMostPlaces; ++tried, end = earlier_[static_cast<size_t>(end)]) {
    const auto place = std::make_reverse_iterator(history.begin() + end);
    const int64_t length = std::min(end, kLongest);
    const int64_t equal = std::mismatch(place, place + length, history.rbegin()).first - place;
    if (equal > best.equal || best.end == 0) best = {end, equal};
  }
  return best;
}

void PromptLookup::Learn(int64_t accepted) {
  COPPICE_CHECK(accepted <= last_);
  if (last_ == 0) return;
  accepted_ += accepted;
  if (accepted == last_) {
    width_ = std::min(most_, 2 * width_ + 1);
  } else {
    width_ = std::max<int64_t>(1, std::min(width_, accepted + 1));
  }
  misses_ = accepted > 0 ? 0 : misses_ + 1;
  if (misses_ > 1) pauses_ = std::min<int64_t>(kMostPauses, int64_t{1} << std::min<int64_t>(misses_, 10));
  last_ = 0;
}

}  // namespace coppice
