// Static token pruning: one choice by the first layers' attention, for good. Prefill only.
//
//   s_i = mean over layers l < p of (1/H) sum_h softmax_i(q_last,h . k_i,g(h) / sqrt(c))   (1)
//   S   = the best ceil(keep n) by s, the last token among them                            (2) ties: earlier
// The other rows leave the stream before layer p. The paper gives neither depth nor share; here p = 4, in
// models of fewer than 8 layers L / 2, and keep = 0.5. Sums stand for means: the order is the same.
//
// Where another method drops rows in between, a token's sum goes on for as long as it is there.
// Cost: p times one query against n keys.
// Source: the baseline of LazyLLM, arXiv 2407.14057, section 5.1.
#include "policies/static_pruning.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "policies/presets.h"
#include "policies/stages.h"

namespace coppice {

namespace {
const Needs::Mass kLastQuery{.queries = 1};
}  // namespace

LayerPoint StaticPruningPolicy::FirstChoice() const {
  return config_.keep >= 1 ? kNoPoint : LayerPoint{config_.layer, false};
}

Needs StaticPruningPolicy::NeedsAt(Phase phase, int layer) const {
  if (phase != Phase::kPrefill || layer >= config_.layer || config_.keep >= 1) return {};
  return {.masses = {kLastQuery}, .unit_scores = {}};
}

TokenSet StaticPruningPolicy::BeforeLayer(const Observation& seen, Backend& be) {
  const int64_t rows = seen.rows();
  if (seen.layer < 1 || seen.layer > config_.layer || config_.keep >= 1) return TokenSet::All(rows);
  const std::vector<float> sum =
      sum_.Add(seen.layer, seen.AttentionMass(kLastQuery).Row<float>(0), seen.positions);  // (1)
  if (seen.layer < config_.layer) return TokenSet::All(rows);
  return BestRows(sum, CeilShare(config_.keep, rows), 0, 1, be);  // (2)
}

namespace {

MethodInstance MakeStaticPruning(const MethodSpec& spec, const MethodContext& context) {
  const ModelShape& shape = context.shape;
  SpecReader read(spec);
  StaticPruningConfig config;
  // Layer 0 stands for no stage, and only a model of one layer has that.
  const int last = std::max(shape.layers - 1, 0);
  config.layer = static_cast<int>(read.Integer("layer", StaticLayer(shape), std::min(1, last), last));
  config.keep = read.Number("keep", config.keep, 1e-6, 1);
  const int64_t minimum = read.Integer("min", 1024, 0, kManyTokens);
  read.RefuseUnknownKeys();

  MethodInstance made;
  made.settings = fmt::format("static:layer={},keep={},min={}", config.layer, config.keep, minimum);
  const std::vector<int> stages = config.layer > 0 ? std::vector{config.layer} : std::vector<int>{};
  made.reason =
      FirstReason({StageReason(stages, shape), LengthReason(context, minimum), WindowReason(context)});
  if (made.reason.empty()) made.policy = std::make_unique<StaticPruningPolicy>(config);
  return made;
}

}  // namespace

MethodInfo StaticPruningMethod() {
  return {"static",
          "drop tokens once, by the attention of the first layers; they never return",
          "static token pruning, the baseline of LazyLLM, arXiv 2407.14057",
          kDropsRows,
          {{"layer", "4, or L / 2 where L < 8", "1 to L - 1",
            "tokens leave before this layer; those below score"},
           {"keep", "0.5", "0 to 1", "share of the tokens that stays"},
           {"min", "1024", "0 up", "shorter prompts run dense"}},
          &MakeStaticPruning};
}

}  // namespace coppice
