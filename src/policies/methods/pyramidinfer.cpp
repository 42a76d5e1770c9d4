// PyramidInfer: in prefill the context shrinks from layer to layer. No training.
//
// With rec = floor(recent N), the last rec + 1 rows are recent, those before them the context. After layer l:
//   w_i    = sum_h sum_{q recent} lambda_q A[h,q,i], lambda = linspace(1, distance_weight)   (1)
//   rho_l  = (1 - r) (cos(pi l / L) + 1) / 2 + r                                             (2) from 1 to r
//   S      = the best floor(|context| rho_l) of the context by w, and all recent rows   (3) ties: earlier
// Rows outside S are dropped before layer l + 1, every `interval` layers. The shares multiply (r = 0.9, 32
// layers: 77 % on average, 38 % in the last layer). (3) counts the first `sink` positions, which stay. A
// count of min_context or fewer keeps the whole context.
//
// strategy=linear is rho_l = 1 - (1 - r) l / L, the straight line between the ends of (2). The public code
// means to use a rising line, but overwrites it with the constant r; the published results use (2).
//
// Cost: (1) repeats the products of 0.2 N queries with the keys, 2 (0.2 N) n H c FLOPs per layer: a fifth of
// the layer's attention before any pruning, two fifths at the end.
//
// Prefill only. In decode the public code never compresses the prompt's keys and values again, but thins out
// the generated tokens, 16 at a time. That rule is left out: generated tokens stay. Source: PyramidInfer:
// pyramid KV cache compression for high-throughput LLM inference, arXiv 2405.12532, and its repository, which
// has these defaults.
#include "policies/methods/pyramidinfer.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "policies/presets.h"
#include "policies/stages.h"

namespace coppice {

double PyramidInferPolicy::Ratio(int layer) const {
  const double depth = static_cast<double>(layer) / config_.layers;
  const double share = config_.linear ? 1 - depth : (std::cos(std::numbers::pi * depth) + 1) / 2;
  return (1 - config_.r) * share + config_.r;  // (2)
}

bool PyramidInferPolicy::PrunesAfter(int layer) const {
  return layer >= 0 && layer + 1 < config_.layers && layer % config_.interval == 0 && Ratio(layer) < 1;
}

LayerPoint PyramidInferPolicy::FirstChoice() const {
  for (int layer = 1; layer < config_.layers; ++layer) {
    if (PrunesAfter(layer - 1)) return {layer, false};
  }
  return kNoPoint;
}

Needs PyramidInferPolicy::NeedsAt(Phase phase, int layer) const {
  if (phase != Phase::kPrefill || !PrunesAfter(layer)) return {};
  return {.masses = {Mass()}, .unit_scores = {}};  // (1)
}

TokenSet PyramidInferPolicy::BeforeLayer(const Observation& seen, Backend& be) {
  const int64_t rows = seen.rows();
  const int64_t context = rows - config_.recent;
  if (!PrunesAfter(seen.layer - 1) || context <= 0) return TokenSet::All(rows);
  const auto count = static_cast<int64_t>(static_cast<double>(context) * Ratio(seen.layer - 1));
  if (count <= config_.min_context) return TokenSet::All(rows);
  const TensorView w = seen.AttentionMass(Mass()).Cols(0, context);
  const int64_t sinks = RowsBelow(seen.positions, config_.sink);
  return BestRows(w.Row<float>(0), count, sinks, 0, be).Shift(0, rows).UnionLast(config_.recent);  // (3)
}

namespace {

Keys PyramidInferKeys(PyramidInferConfig& c, const ModelShape& shape) {
  const PyramidInferPreset preset = PyramidInferFor(shape);
  c.layers = shape.layer_count();
  c.r = preset.r;
  c.interval = preset.interval;
  return {
      {"r", &c.r, kAboveZero, 1, "share of the context that the last layers keep from the layer before",
       "0.9; 0.8 for Llama-2-13B"},
      {"recent", &c.recent_share, 0, 1, "share of the prompt, at its end, that scores and is always kept"},
      {"sink", &c.sink, 0, kManyTokens, "positions below this are always kept"},
      {"interval", &c.interval, 1, 1024, "number of layers between prunings", "1; 2 for 13B, 3 for 70B"},
      {"distance_weight", &c.distance_weight, kAboveZero, 1e6,
       "weight of the last scoring query relative to the first"},
      {"min_context", &c.min_context, 0, kManyTokens, "a context always keeps more than this many tokens"},
      {"strategy", &c.linear, "cosine linear", "how the share falls from 1 to r over the layers"},
      MinKey(c.minimum),
  };
}

MethodInstance MakePyramidInfer(const MethodSpec& spec, const MethodContext& context) {
  PyramidInferConfig c;
  Keys keys = PyramidInferKeys(c, context.shape);
  keys.Read(spec);
  c.recent = static_cast<int>(c.recent_share * static_cast<double>(context.tokens)) + 1;
  const int64_t rest = std::max<int64_t>(context.tokens - c.recent, 0);
  std::string small;
  if (rest <= c.min_context) {
    small = fmt::format("recent={} leaves {} of {} prompt tokens, no more than min_context={}",
                        c.recent_share, rest, context.tokens, c.min_context);
  }
  return MakeInstance<PyramidInferPolicy>(
      keys, {LengthReason(context, c.minimum), small, WindowReason(context)}, c);
}

}  // namespace

MethodInfo PyramidInferMethod() {
  return {"pyramidinfer",
          "shrink the context a little at every layer, by the attention of the last fifth of the prompt",
          "PyramidInfer: pyramid KV cache compression for high-throughput LLM inference, arXiv 2405.12532",
          kDropsRows,
          HelpOf(&PyramidInferKeys),
          &MakePyramidInfer};
}

}  // namespace coppice
