#include "tensor/token_set.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace coppice {

TokenSet::TokenSet(bool all, int64_t universe, std::vector<int32_t> rows)
    : all_(all), universe_(universe), rows_(std::move(rows)) {
  if (!all_ && static_cast<int64_t>(rows_.size()) == universe_) {  // one form for the full set
    all_ = true;
    rows_.clear();
  }
}

TokenSet TokenSet::All(int64_t universe) { return {true, universe, {}}; }
TokenSet TokenSet::None(int64_t universe) { return {false, universe, {}}; }

TokenSet TokenSet::Range(int64_t begin, int64_t end, int64_t universe) {
  begin = std::clamp<int64_t>(begin, 0, universe);
  end = std::clamp<int64_t>(end, begin, universe);
  std::vector<int32_t> rows(static_cast<size_t>(end - begin));
  std::iota(rows.begin(), rows.end(), static_cast<int32_t>(begin));
  return {false, universe, std::move(rows)};
}

TokenSet TokenSet::Of(std::vector<int32_t> rows, int64_t universe) {
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  COPPICE_CHECK(rows.empty() || (rows.front() >= 0 && rows.back() < universe));
  return {false, universe, std::move(rows)};
}

bool TokenSet::Contains(int64_t row) const {
  if (row < 0 || row >= universe_) return false;
  return all_ || std::binary_search(rows_.begin(), rows_.end(), static_cast<int32_t>(row));
}

std::vector<int32_t> TokenSet::ToRows() const {
  if (!all_) return rows_;
  std::vector<int32_t> rows(static_cast<size_t>(universe_));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

std::span<const int32_t> TokenSet::rows() const {
  COPPICE_CHECK(!all_);
  return rows_;
}

TokenSet TokenSet::Intersect(const TokenSet& other) const {
  COPPICE_CHECK(universe_ == other.universe_);
  if (all_) return other;
  if (other.all_) return *this;
  std::vector<int32_t> rows;
  std::set_intersection(rows_.begin(), rows_.end(), other.rows_.begin(), other.rows_.end(),
                        std::back_inserter(rows));
  return {false, universe_, std::move(rows)};
}

TokenSet TokenSet::Union(const TokenSet& other) const {
  COPPICE_CHECK(universe_ == other.universe_);
  if (all_ || other.all_) return All(universe_);
  std::vector<int32_t> rows;
  std::set_union(rows_.begin(), rows_.end(), other.rows_.begin(), other.rows_.end(),
                 std::back_inserter(rows));
  return {false, universe_, std::move(rows)};
}

TokenSet TokenSet::UnionFirst(int64_t count) const { return Union(Range(0, count, universe_)); }
TokenSet TokenSet::UnionLast(int64_t count) const {
  return Union(Range(universe_ - count, universe_, universe_));
}

TokenSet TokenSet::Shift(int64_t offset, int64_t universe) const {
  std::vector<int32_t> rows = ToRows();
  for (int32_t& row : rows) row += static_cast<int32_t>(offset);
  COPPICE_CHECK(rows.empty() || (rows.front() >= 0 && rows.back() < universe));
  return {false, universe, std::move(rows)};
}

bool operator==(const TokenSet& a, const TokenSet& b) {
  return a.universe_ == b.universe_ && a.all_ == b.all_ && a.rows_ == b.rows_;
}

}  // namespace coppice
