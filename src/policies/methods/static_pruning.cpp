// Static token pruning: the attention of the first layers decides once which tokens are dropped. Prefill
// only.
//
//   s_i = mean over layers l < p of (1/H) sum_h softmax_i(q_last,h . k_i,g(h) / sqrt(c))   (1)
//   S   = the best ceil(keep n) by s, the last token among them                            (2) ties: earlier
// The other rows are dropped before layer p. The paper gives neither depth nor share; here p = 4 (L / 2 in
// models of fewer than 8 layers) and keep = 0.5. The code adds instead of averaging: the order is the same.
//
// If another method drops rows in between, the sums of the remaining tokens continue.
// Cost: p times one query against n keys.
// Source: the baseline of LazyLLM, arXiv 2407.14057, section 5.1.
#include "policies/methods/static_pruning.h"

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

Keys StaticKeys(StaticPruningConfig& c, const ModelShape& shape) {
  c.layer = StaticLayer(shape);
  // In a model of one layer the only value is 0: no stage.
  const int last = std::max(shape.layer_count() - 1, 0);
  return {{"layer", &c.layer, std::min(1, last), last,
           "tokens are dropped before this layer, by the attention of those below", "4, or L / 2 where L < 8",
           "1 to L - 1"},
          {"keep", &c.keep, kAboveZero, 1, "share of the tokens to keep"},
          MinKey(c.minimum)};
}

MethodInstance MakeStaticPruning(const MethodSpec& spec, const MethodContext& context) {
  StaticPruningConfig c;
  Keys keys = StaticKeys(c, context.shape);
  keys.Read(spec);
  const std::vector<int> stages(c.layer > 0 ? 1 : 0, c.layer);
  return MakeInstance<StaticPruningPolicy>(
      keys,
      {StageReason(stages, context.shape), LengthReason(context, c.minimum),
       NothingToDrop(context, CeilShare(c.keep, context.tokens)), WindowReason(context)},
      c);
}

}  // namespace

MethodInfo StaticPruningMethod() {
  return {"static",
          "drop tokens once, by the attention of the first layers; they never return",
          "static token pruning, the baseline of LazyLLM, arXiv 2407.14057",
          kDropsRows,
          HelpOf(&StaticKeys),
          &MakeStaticPruning};
}

}  // namespace coppice
