// Documents for tests of the document cache: prompts, states and caches of a small model.
#pragma once

#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "engine/documents/document_cache.h"

namespace coppice::document_test {

using Ids = std::vector<int32_t>;

inline constexpr int kLayers = 4;
inline constexpr LayerPoint kDense{kLayers, false};
inline constexpr LayerPoint kAfterOne{1, true};

inline PrefixFormat Format(uint64_t model = 5) {
  return {.fingerprint = {model, 22},
          .cache_type = DType::kBF16,
          .key_widths = std::vector<int64_t>(kLayers, 16),
          .hidden = 24,
          .vocab = 1000};
}

// Different from the first token on for every `text`, and at every place.
inline Ids Text(int32_t text, int64_t tokens, int32_t begin = 0) {
  Ids ids;
  for (int32_t i = 0; i < tokens; ++i) ids.push_back((text * 131 + (begin + i) * 7) % 1000);
  return ids;
}

// Of the same seed, a longer text begins with a shorter one. Texts of two seeds, and those of
// Text(), have nothing in common.
inline Ids Random(uint32_t seed, int64_t tokens) {
  std::mt19937 engine(seed);
  Ids ids(static_cast<size_t>(tokens));
  for (int32_t& id : ids) id = static_cast<int32_t>(1000 + engine() % 30000);
  return ids;
}

inline Ids Joined(Ids first, const Ids& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

inline Tensor Filled(DType type, int64_t rows, int64_t cols, int32_t seed) {
  Tensor tensor(type, rows, cols);
  std::memset(tensor.mutable_view().data, seed & 0x3f, static_cast<size_t>(tensor.bytes()));
  return tensor;
}

inline std::shared_ptr<const PrefixState> StateOf(Ids tokens, LayerPoint point = kAfterOne,
                                                  bool complete = true, const PrefixOwner& owner = {}) {
  const auto rows = static_cast<int64_t>(tokens.size());
  auto state = std::make_shared<PrefixState>();
  state->owner = owner;
  state->point = point;
  state->complete = complete;
  for (int l = 0; l < LayersWithKeys(point); ++l) {
    state->layers.push_back({Filled(DType::kBF16, rows, 16, tokens.front() + l),
                             Filled(DType::kBF16, rows, 16, tokens.front() + l + 1)});
  }
  if (point.layer < kLayers) state->hidden = Filled(DType::kF32, rows, 24, tokens.back());
  state->tokens = std::move(tokens);
  return state;
}

// Every token at kAfterOne takes 2 layers of 64 bytes, 96 of hidden state, 4 of its own.
inline constexpr int64_t kToken = 2 * 2 * 32 + 96 + 4;

inline std::unique_ptr<DocumentCache> Make(DocumentCacheOptions options = {}, uint64_t model = 5) {
  return std::make_unique<DocumentCache>(std::move(options), [model] { return Format(model); });
}

inline int64_t RowsFound(DocumentCache& cache, const Ids& tokens, LayerPoint point = kDense,
                         int64_t tail = 1) {
  return cache.Find(tokens, {.point = point, .tail = tail}).rows;
}

}  // namespace coppice::document_test
