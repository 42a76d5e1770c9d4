#include "kv/layer_cache.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/ascends.h"

namespace coppice {

namespace {

// A copy of the first `rows` rows of `old`, in a matrix of `capacity` rows.
Tensor Resized(const Tensor& old, DType dtype, int64_t capacity, int64_t width, int64_t rows) {
  Tensor resized(dtype, capacity, width, old.memory());
  CopyRows(old.view().Rows(0, rows), resized.mutable_view().Rows(0, rows));
  return resized;
}

void MoveRows(MutableTensorView m, int64_t from, int64_t count, int64_t to) {
  std::memmove(m.RowBytes(to), m.RowBytes(from), static_cast<size_t>(count * m.stride));
}

// Moves the rows `kept` (ascending) to the front.
void Compact(MutableTensorView columns, std::span<const int32_t> kept) {
  KeepRows(columns, kept, columns.Rows(0, std::ssize(kept)));
}

void Compact(std::vector<int32_t>& positions, std::span<const int32_t> kept) {
  for (size_t i = 0; i < kept.size(); ++i) positions[i] = positions[static_cast<size_t>(kept[i])];
  positions.resize(kept.size());
}

}  // namespace

LayerCache::LayerCache(DType dtype, int kv_heads, int head_dim, DeviceMemory* memory)
    : dtype_(dtype), kv_heads_(kv_heads), head_dim_(head_dim), keys_(memory), values_(memory) {
  COPPICE_CHECK((kv_heads > 0 && head_dim > 0) || (kv_heads == 0 && head_dim == 0));
}

void LayerCache::Reserve(int64_t rows) {
  if (rows > keys_.rows()) SetCapacity(rows);
}

void LayerCache::SetCapacity(int64_t rows) {
  keys_ = Resized(keys_, dtype_, rows, width(), rows_);
  values_ = Resized(values_, dtype_, rows, width(), rows_);
}

void LayerCache::Grow(int64_t rows) {
  if (rows > keys_.rows()) Reserve(std::max(rows, keys_.rows() + keys_.rows() / 2));
}

LayerCache::Fresh LayerCache::Append(std::span<const int32_t> positions) {
  const int64_t before = rows_;
  const int64_t count = static_cast<int64_t>(positions.size());
  COPPICE_CHECK(count > 0 && positions.front() >= 0 && Ascends(positions));
  for (const std::vector<int32_t>& list : positions_) {
    COPPICE_CHECK(list.empty() || positions.front() > list.back());
  }
  Grow(before + count);
  for (std::vector<int32_t>& list : positions_) list.insert(list.end(), positions.begin(), positions.end());
  rows_ = before + count;
  return {keys_.mutable_view().Rows(before, count), values_.mutable_view().Rows(before, count)};
}

std::vector<int32_t> LayerCache::Insert(std::span<const int32_t> positions) {
  COPPICE_CHECK(!ragged());
  if (positions.empty()) return {};
  COPPICE_CHECK(positions.front() >= 0 && Ascends(positions));
  std::vector<int32_t>& list = positions_[0];
  const int64_t count = static_cast<int64_t>(positions.size());
  std::vector<int32_t> fresh(positions.size());  // for each position, the old row that it goes before
  auto at = list.begin();
  for (size_t i = 0; i < positions.size(); ++i) {
    at = std::lower_bound(at, list.end(), positions[i]);
    COPPICE_CHECK(at == list.end() || *at != positions[i]);
    fresh[i] = static_cast<int32_t>(at - list.begin());
  }
  if (keys_.memory() != nullptr) {
    std::vector<int32_t> old_rows;  // of every row; any old row where the row is new
    size_t next = 0;
    for (int32_t row = 0; row <= rows_; ++row) {
      for (; next < fresh.size() && fresh[next] == row; ++next) old_rows.push_back(0);
      if (row < rows_) old_rows.push_back(row);
    }
    Reorder(old_rows);
  } else {
    Grow(rows_ + count);
  }
  list.resize(list.size() + positions.size());
  // From the back: the old rows between the i-th new row and the next one move by i + 1.
  int64_t end = rows_;
  for (int64_t i = count - 1; i >= 0; --i) {
    int32_t& row = fresh[static_cast<size_t>(i)];
    if (row < end) {
      if (keys_.memory() == nullptr) {
        MoveRows(keys_.mutable_view(), row, end - row, row + i + 1);
        MoveRows(values_.mutable_view(), row, end - row, row + i + 1);
      }
      std::move_backward(list.begin() + row, list.begin() + end, list.begin() + end + i + 1);
    }
    end = row;
    row += static_cast<int32_t>(i);
    list[static_cast<size_t>(row)] = positions[static_cast<size_t>(i)];
  }
  rows_ += count;
  return fresh;
}

void LayerCache::Reorder(std::span<const int32_t> old_rows) {
  const auto rows = std::ssize(old_rows);
  const int64_t before = keys_.rows();
  const int64_t capacity = rows > before ? std::max(rows, before + before / 2) : before;
  for (Tensor* tensor : {&keys_, &values_}) {
    Tensor reordered(dtype_, capacity, width(), tensor->memory());
    if (rows_ > 0) {
      tensor->memory()->Gather(tensor->view().Rows(0, rows_), old_rows,
                               reordered.mutable_view().Rows(0, rows));
    }
    *tensor = std::move(reordered);
  }
}

std::vector<int32_t> LayerCache::Add(std::span<const int32_t> positions) {
  if (rows_ > 0 && positions.front() < this->positions().back()) return Insert(positions);
  std::vector<int32_t> fresh(positions.size());
  std::iota(fresh.begin(), fresh.end(), static_cast<int32_t>(rows_));
  Append(positions);
  return fresh;
}

void LayerCache::Clear() { *this = LayerCache(dtype_, kv_heads_, head_dim_, keys_.memory()); }

void LayerCache::DropLast(int64_t count) {
  COPPICE_CHECK(count >= 0 && count <= rows_);
  rows_ -= count;
  for (std::vector<int32_t>& list : positions_) list.resize(static_cast<size_t>(rows_));
}

void LayerCache::Keep(std::span<const TokenSet> rows) {
  COPPICE_CHECK(rows.size() == 1 || rows.size() == static_cast<size_t>(kv_heads_));
  for (const TokenSet& set : rows) {
    COPPICE_CHECK(set.universe() == rows_ && set.size() == rows[0].size());
  }
  if (rows[0].size() == rows_) return;  // every set is then the full set
  if (rows.size() == 1) {
    Compact(keys_.mutable_view(), rows[0].rows());
    Compact(values_.mutable_view(), rows[0].rows());
    for (std::vector<int32_t>& list : positions_) Compact(list, rows[0].rows());
  } else {
    if (!ragged()) positions_.assign(rows.size(), std::vector<int32_t>(positions_[0]));
    for (size_t head = 0; head < rows.size(); ++head) {
      const int64_t column = static_cast<int64_t>(head) * head_dim_;
      Compact(keys_.mutable_view().Cols(column, head_dim_), rows[head].rows());
      Compact(values_.mutable_view().Cols(column, head_dim_), rows[head].rows());
      Compact(positions_[head], rows[head].rows());
    }
  }
  if (std::equal(positions_.begin() + 1, positions_.end(), positions_.begin())) positions_.resize(1);
  rows_ = rows[0].size();
  // Eviction returns the memory of the evicted rows and leaves a quarter for rows to come.
  if (rows_ < keys_.rows() / 2) SetCapacity(rows_ + rows_ / 4);
}

std::vector<std::span<const int32_t>> LayerCache::position_lists() const {
  return {positions_.begin(), positions_.end()};
}

std::vector<int32_t> LayerCache::RowsOf(std::span<const int32_t> positions) const {
  COPPICE_CHECK(!ragged());
  const std::vector<int32_t>& list = positions_[0];
  std::vector<int32_t> found;
  found.reserve(std::min(positions.size(), list.size()));
  auto at = list.begin();
  for (const int32_t position : positions) {
    // Usually a hit: callers ask for runs of positions.
    if (at != list.end() && *at < position) at = std::lower_bound(at + 1, list.end(), position);
    if (at == list.end()) break;
    if (*at == position) found.push_back(static_cast<int32_t>(at++ - list.begin()));
  }
  return found;
}

void LayerCache::SetPosition(int64_t row, int32_t position) {
  COPPICE_CHECK(!ragged() && row >= 0 && row < rows_);
  std::vector<int32_t>& list = positions_[0];
  const size_t i = static_cast<size_t>(row);
  COPPICE_CHECK(position >= 0 && (i == 0 || list[i - 1] < position) &&
                (i + 1 == list.size() || position < list[i + 1]));
  list[i] = position;
}

}  // namespace coppice
