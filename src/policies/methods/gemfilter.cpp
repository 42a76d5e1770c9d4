// GemFilter: a first pass runs the prompt through the model's layers 0 to r alone. There the query of the
// prompt's last token chooses k tokens. A second pass runs these through the whole model, as a prompt of
// their own. No training, no second model.
//
//   s_i = sum over h of q[r,h,N-1] . k[r,g(h),i]                           (1) after RoPE
//   p_i = (1 / kernel) sum over |j - i| <= kernel / 2 of s_j               (2) zeros beyond the prompt's ends
//   enter: the last token, and the best others by p, k in all              (3) ties: the earlier token
// (1) has neither scale nor softmax, and so no bias of ALiBi: a head whose products are large outweighs the
// others. The mean over heads that the backend computes has the same order. The tokens that enter take
// positions 0, 1, ..., and generated tokens continue at k; positions=original keeps their own.
//
// The authors' code lets the last token go where it is not among the best; here it always enters. What the
// user protects enters on top of k.
//
// Cost: layers 0 to r - 1 for N tokens, keys and values of layer r, and a prefill of k tokens. The first
// pass holds the keys and values of its r + 1 layers until it ends. The method stands aside where
// r N + k L >= N L: the two passes would then compute as many token-layers as the dense prefill. min=0
// switches this off, too.
//
// Source: Z. Shi et al., "Discovering the gems in early layers: accelerating long-context LLMs with 1000x
// input token reduction", arXiv 2409.17422, algorithm 1, and its repository: k = 1024, kernel = 5, r = 13 of
// Llama-3.1-8B's 32 layers, counted from 0.
#include "policies/methods/gemfilter.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "policies/methods/specprefill.h"
#include "policies/presets.h"
#include "policies/stages.h"

namespace coppice {

namespace {

// One query, and units of one key: the mean over heads of q . k.
constexpr Needs::Units kLastQueryScores = {.queries = 1, .unit = 1, .pool = KeyPool::kMean};

}  // namespace

Needs FilterWatch::NeedsAt(Phase phase, int layer) const {
  return RetainsAt(phase, layer) ? Needs{.masses = {}, .unit_scores = {kLastQueryScores}} : Needs{};
}

bool FilterWatch::RetainsAt(Phase phase, int layer) const {
  return phase == Phase::kPrefill && layer == layer_;
}

// Retain is the only question whose scores the last layer computes.
std::optional<Retained> FilterWatch::Retain(const Observation& seen, const CacheScene& /*cache*/,
                                            Backend& /*be*/) {
  const TensorView scores = seen.UnitScores(kLastQueryScores);  // (1)
  const std::span<const float> row = scores.Row<float>(0);
  scores_.assign(row.begin(), row.end());
  return std::nullopt;
}

GemFilterPolicy::GemFilterPolicy(const GemFilterConfig& config, FilterScores first_layers)
    : config_(config), first_layers_(std::move(first_layers)) {}

TokenSet GemFilterPolicy::Input(int64_t tokens, Backend& be) {
  const int64_t count = std::max<int64_t>(config_.keep.Of(tokens), 1);
  if (count >= tokens) return TokenSet::All(tokens);
  std::vector<float> scores = first_layers_(config_.layer);
  COPPICE_CHECK(static_cast<int64_t>(scores.size()) == tokens);
  PoolAverage(scores, config_.kernel);       // (2)
  return BestRows(scores, count, 0, 1, be);  // (3)
}

namespace {

Keys GemFilterKeys(GemFilterConfig& c, const ModelShape& shape) {
  c.layer = GemFilterLayer(shape);
  return {
      {"layer", &c.layer, 0, std::max(shape.layer_count() - 1, 0),
       "the filter layer: its attention chooses, and the first pass ends there", "13 L / 32", "0 to L - 1"},
      BudgetKey("keep", c.keep, "prompt tokens that enter the model"),
      Keys("kernel", &c.kernel, 1, 4095, "number of neighbouring tokens whose scores are averaged", "",
           "1 to 4095, odd")
          .Check([&c] { return c.kernel % 2 == 1 ? "" : "must be odd"; }),
      {"positions", &c.compact, "original compact",
       "compact: the remaining tokens are renumbered without gaps"},
      MinKey(c.minimum),
  };
}

// Why two passes would not be less work than one, or "".
std::string WorkReason(const MethodContext& context, const GemFilterConfig& c, int64_t entering) {
  const int64_t dense = context.tokens * context.shape.layer_count();
  if (c.minimum == 0 || context.tokens * c.layer + entering * context.shape.layer_count() < dense) return "";
  return fmt::format("{} layers of {} prompt tokens and a pass of {} are no less work than the dense prefill",
                     c.layer, context.tokens, entering);
}

MethodInstance MakeGemFilter(const MethodSpec& spec, const MethodContext& context) {
  GemFilterConfig c;
  Keys keys = GemFilterKeys(c, context.shape);
  keys.Read(spec);
  if (c.keep.value == 0) throw PruneError("gemfilter: keep=0 keeps nothing");
  const int64_t entering =
      std::clamp<int64_t>(c.keep.Of(context.tokens), 1, std::max<int64_t>(context.tokens, 1));
  MethodInstance made =
      MakeInstance<GemFilterPolicy>(keys,
                                    {LengthReason(context, c.minimum), NothingToDrop(context, entering),
                                     WorkReason(context, c, entering), WindowReason(context, c.layer)},
                                    c, context.first_layers);
  if (made.policy) made.entering = entering;
  return made;
}

}  // namespace

MethodInfo GemFilterMethod() {
  return {"gemfilter",
          "the model's own early layers choose the tokens that enter it, in a pass of their own",
          "Discovering the gems in early layers: accelerating long-context LLMs with 1000x input token "
          "reduction, arXiv 2409.17422",
          kSelectsInput,
          HelpOf(&GemFilterKeys),
          &MakeGemFilter};
}

}  // namespace coppice
