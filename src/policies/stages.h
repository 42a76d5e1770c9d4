// What the methods that drop rows at a few layers have in common: how a spec names the stages, how many rows
// a share is, and the choice of the best rows with some of them protected.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "formats/model_shape.h"
#include "kernels/backend.h"
#include "policies/spec.h"
#include "tensor/token_set.h"

namespace coppice {

// The key `layers`: strictly ascending, in [1, L - 1], or "none". Throws Error.
std::vector<int> ReadLayers(SpecReader& read, const MethodSpec& spec, const std::vector<int>& fallback,
                            const ModelShape& shape);
// The key `keep`, one value per stage; one value stands for all. Never empty. Throws Error where the numbers
// do not match.
std::vector<double> ReadKeep(SpecReader& read, const MethodSpec& spec, size_t stages, double high);

// As ReadLayers takes them back: "10/20/30", or "none".
std::string LayersText(const std::vector<int>& layers);
// Why a method without a stage cannot act, or "".
std::string StageReason(const std::vector<int>& layers, const ModelShape& shape);

// The index of `layer` in `layers`, or -1.
int StageOf(const std::vector<int>& layers, int layer);

// share * count rounded up, or half up. A product that misses a whole number by rounding alone is that
// number: 0.07 * 100 is 7 rows.
int64_t CeilShare(double share, int64_t count);
int64_t RoundShare(double share, int64_t count);

// How many of ascending `positions` lie below `limit`.
int64_t RowsBelow(std::span<const int32_t> positions, int64_t limit);

// The best `count` rows, the first `first` and the last `last` rows among them whatever their scores; these
// stay even where they alone are more than `count`. Ties go to the earlier row; a NaN ranks last.
TokenSet BestRows(std::span<const float> scores, int64_t count, int64_t first, int64_t last, Backend& be);

}  // namespace coppice
