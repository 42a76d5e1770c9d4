// PyramidInfer: in prefill the context shrinks from layer to layer. No training.
//
// With rec = floor(recent N), the last rec + 1 rows are recent, those before them the context. After layer l:
//   w_i    = sum_h sum_{q recent} lambda_q A[h,q,i], lambda = linspace(1, distance_weight)   (1)
//   rho_l  = (1 - r) (cos(pi l / L) + 1) / 2 + r                                             (2) from 1 to r
//   S      = the best floor(|context| rho_l) of the context by w, and all recent rows    (3) ties: the earlier
// Rows outside S leave before layer l + 1: the sizes multiply (r = 0.9, 32 layers: 77 % on average,
// 38 % in the last layer). The first `sink` positions stay, inside the count; a count of min_context or fewer
// keeps the whole context; every `interval` layers.
//
// strategy=linear is rho_l = 1 - (1 - r) l / L: the straight line between (2)'s ends. The public code means
// one that rises, and overwrites it with the constant r; the published results use (2).
//
// Cost: (1) repeats the products of 0.2 N queries with the keys, 2 (0.2 N) n H c flops per layer: a fifth of
// the layer's attention where nothing is pruned yet, two fifths at the end.
//
// Prefill only: the public code also thins the generated tokens, 16 at a time, once there are that many; the
// prompt's keys and values it never compresses again in decode. That rule is left out: generated tokens stay.
// Source: PyramidInfer: pyramid KV cache compression for high-throughput LLM inference, arXiv 2405.12532, and
// its repository, whose defaults these are.
#include "policies/pyramidinfer.h"

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

MethodInstance MakePyramidInfer(const MethodSpec& spec, const MethodContext& context) {
  const ModelShape& shape = context.shape;
  const PyramidInferPreset preset = PyramidInferFor(shape);
  SpecReader read(spec);
  PyramidInferConfig config;
  config.layers = shape.layers;
  config.r = read.Number("r", preset.r, 1e-6, 1);
  const double recent = read.Number("recent", 0.2, 0, 1);
  config.recent = static_cast<int>(recent * static_cast<double>(context.tokens)) + 1;
  config.sink = static_cast<int>(read.Integer("sink", config.sink, 0, kManyTokens));
  config.interval = static_cast<int>(read.Integer("interval", preset.interval, 1, 1024));
  config.distance_weight = read.Number("distance_weight", config.distance_weight, 1e-6, 1e6);
  config.min_context = static_cast<int>(read.Integer("min_context", config.min_context, 0, kManyTokens));
  config.linear = read.Choice("strategy", {"cosine", "linear"}) == "linear";
  const int64_t minimum = read.Integer("min", 1024, 0, kManyTokens);
  read.RefuseUnknownKeys();

  MethodInstance made;
  made.settings = fmt::format(
      "pyramidinfer:r={},recent={},sink={},interval={},distance_weight={},min_context={},strategy={},min={}",
      config.r, recent, config.sink, config.interval, config.distance_weight, config.min_context,
      config.linear ? "linear" : "cosine", minimum);
  const int64_t rest = context.tokens - config.recent;
  const std::string small =
      rest > config.min_context
          ? ""
          : fmt::format("recent={} leaves {} of {} prompt tokens, no more than min_context={}", recent,
                        std::max<int64_t>(rest, 0), context.tokens, config.min_context);
  made.reason = FirstReason({LengthReason(context, minimum), small, WindowReason(context)});
  if (made.reason.empty()) made.policy = std::make_unique<PyramidInferPolicy>(config);
  return made;
}

}  // namespace

MethodInfo PyramidInferMethod() {
  return {"pyramidinfer",
          "shrink the context a little at every layer, by the attention of the last fifth of the prompt",
          "PyramidInfer: pyramid KV cache compression for high-throughput LLM inference, arXiv 2405.12532",
          kDropsRows,
          {{"r", "0.9; 0.8 for Llama-2-13B", "0 to 1",
            "share of the context that the last layers keep of the layer before"},
           {"recent", "0.2", "0 to 1", "share of the prompt at its end that scores and stays"},
           {"sink", "4", "0 up", "positions below this always stay"},
           {"interval", "1; 2 for 13B, 3 for 70B", "1 to 1024", "layers from one pruning to the next"},
           {"distance_weight", "1.2", "0 up", "of the last query against the first that scores"},
           {"min_context", "64", "0 up", "a context is not cut to this many tokens or fewer"},
           {"strategy", "cosine", "cosine, linear", "how the share falls from 1 to r over the layers"},
           {"min", "1024", "0 up", "shorter prompts run dense"}},
          &MakePyramidInfer};
}

}  // namespace coppice
