// Shared by the methods that drop rows at a few layers (stages): the keys that name the stages, shares of
// rows, and the choice of the best rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/model_shape.h"
#include "kernels/backend.h"
#include "policies/keys.h"
#include "tensor/token_set.h"

namespace coppice {

// The key `layers`: strictly ascending, in [1, L - 1].
Keys LayersKey(std::vector<int>& layers, const ModelShape& shape, std::string_view meaning,
               std::string_view fallback, std::string_view range = "1 to L - 1, or none");

// For a key with one value per stage: a single value is repeated, and is kept where there are no stages.
// Throws PruneError for any other number of values.
template <typename T>
void FillStages(std::vector<T>& values, size_t stages, std::string_view method, std::string_view key) {
  if (values.size() == 1) {
    values.resize(std::max<size_t>(stages, 1), T(values.front()));
  } else if (values.size() != stages) {
    throw PruneError("{}: {} has {} values for {} layers", method, key, values.size(), stages);
  }
}

// Why a method without stages cannot act, or "".
std::string StageReason(const std::vector<int>& layers, const ModelShape& shape);

// The index of `layer` in `layers`, or -1.
int StageOf(const std::vector<int>& layers, int layer);

// share * count, rounded up or half up. Rounding errors of the product do not count: 0.07 * 100 gives 7 rows.
int64_t CeilShare(double share, int64_t count);
int64_t RoundShare(double share, int64_t count);

// Number of the ascending `positions` below `limit`.
int64_t RowsBelow(std::span<const int32_t> positions, int64_t limit);

// The best `count` rows. The first `first` and the last `last` rows are always among them, even if they alone
// are more than `count`. Ties go to the earlier row; a NaN ranks last.
TokenSet BestRows(std::span<const float> scores, int64_t count, int64_t first, int64_t last, Backend& be);

}  // namespace coppice
