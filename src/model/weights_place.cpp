// Weights where a backend reads them fastest, and a look at all tensors of a file.
#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"
#include "formats/printable.h"
#include "formats/quants.h"
#include "model/weights.h"

namespace coppice {

namespace {

// Fills `to` with what `place` makes of each tensor of `loaded`.
template <typename Place>
void Arrange(const Weights& loaded, Weights& to, Place&& place) {
  const auto vector = [&](const TensorView& v) { return place(v, WeightUse::kVector); };
  const auto norm = [&](const Norm& n) { return Norm{vector(n.weight), vector(n.bias)}; };
  const auto linear = [&](const Linear& l) {
    return Linear{place(l.weight, WeightUse::kProduct), vector(l.bias)};
  };
  const auto linears = [&](const std::vector<Linear>& of) {
    std::vector<Linear> placed;
    for (const Linear& l : of) placed.push_back(linear(l));
    return placed;
  };
  to.head = linear(loaded.head);
  // A table of quantised rows is read in the layout of a factor, so a tied one is placed once.
  const TensorView& table = loaded.embedding;
  const bool tied = table.data == loaded.head.weight.data && Info(table.dtype).block_elements > 1;
  to.embedding = tied ? to.head.weight : place(table, WeightUse::kTable);
  to.embedding_norm = norm(loaded.embedding_norm);
  to.final_norm = norm(loaded.final_norm);
  to.head_norm = norm(loaded.head_norm);
  to.layers.clear();
  for (const LayerWeights& l : loaded.layers) {
    to.layers.push_back(
        {.attention_norm = norm(l.attention_norm),
         .query_norm = norm(l.query_norm),
         .key_norm = norm(l.key_norm),
         .value_norm = norm(l.value_norm),
         .query = linear(l.query),
         .key = linear(l.key),
         .value = linear(l.value),
         .output = linear(l.output),
         .output_gate = linear(l.output_gate),
         .sinks = vector(l.sinks),
         .attention_post_norm = norm(l.attention_post_norm),
         .ffn_norm = norm(l.ffn_norm),
         .gate = linear(l.gate),
         .up = linear(l.up),
         .down = linear(l.down),
         .ffn_post_norm = norm(l.ffn_post_norm),
         .recurrent = {},  // Backend::CheckNeeds: no device computes it
         .mixture = {.router = linear(l.mixture.router),
                     .selection_bias = vector(l.mixture.selection_bias),
                     .gate = linears(l.mixture.gate),
                     .up = linears(l.mixture.up),
                     .down = linears(l.mixture.down),
                     .shared_gate = linear(l.mixture.shared_gate),
                     .shared_up = linear(l.mixture.shared_up),
                     .shared_down = linear(l.mixture.shared_down),
                     .shared_router = linear(l.mixture.shared_router),
                     .router_norm = norm(l.mixture.router_norm),
                     .expert_norm = norm(l.mixture.expert_norm),
                     .post_norm = norm(l.mixture.post_norm),
                     .shared_post_norm = norm(l.mixture.shared_post_norm),
                     .expert_scale = vector(l.mixture.expert_scale)},
         .own_embedding = {.tokens = l.own_embedding.tokens.empty() ? TensorView() : to.embedding,
                           .table = place(l.own_embedding.table, WeightUse::kTable),
                           .projection = linear(l.own_embedding.projection),
                           .norm = norm(l.own_embedding.norm),
                           .gate = linear(l.own_embedding.gate),
                           .output = linear(l.own_embedding.output),
                           .post_norm = norm(l.own_embedding.post_norm)},
         .scale = l.scale});
  }
}

}  // namespace

std::shared_ptr<const Weights> Weights::Place(std::shared_ptr<const Weights> loaded, Backend& be) {
  if (be.memory() == nullptr) return loaded;
  const std::shared_ptr<Weights> placed(new Weights);
  int64_t bytes = 0;
  Arrange(*loaded, *placed, [&](const TensorView& w, WeightUse use) {
    if (!w.empty()) bytes += be.PlacedBytes(w, use);
    return w;
  });
  be.CheckFits({.weights = bytes});
  Arrange(*loaded, *placed, [&](const TensorView& w, WeightUse use) {
    if (w.empty()) return w;
    PlacedWeight copy = be.PlaceWeight(w, use);
    placed->owned_.push_back(std::move(copy.storage));
    return copy.view;
  });
  placed->rope_factors = loaded->rope_factors;
  placed->parameters = loaded->parameters;
  placed->active_parameters = loaded->active_parameters;
  placed->bytes = loaded->bytes;
  placed->loaded_ = std::move(loaded);
  return placed;
}

std::vector<TensorFinding> CheckTensors(const TensorStore& store) {
  std::vector<TensorFinding> findings;
  for (const StoredTensor& t : store.tensors()) {
    std::vector<float> row(static_cast<size_t>(t.view.cols));
    int64_t bad = 0;
    bool all_zero = true;
    for (int64_t r = 0; r < t.view.rows; ++r) {
      DequantizeRow(t.view.dtype, t.view.RowBytes(r), row);
      for (const float v : row) {
        bad += !std::isfinite(v);
        all_zero = all_zero && v == 0;
      }
    }
    if (bad > 0)
      findings.push_back({fmt::format("{}: {} values are NaN or Inf", Printable(t.name), bad), false});
    if (all_zero) findings.push_back({fmt::format("{}: all values are zero", Printable(t.name)), true});
  }
  return findings;
}

}  // namespace coppice
