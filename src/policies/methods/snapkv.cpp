// SnapKV: the answer will need the keys that the last queries of the prompt attend to. No training. Evicts
// once per layer, after its attention in prefill; decode never evicts.
//   s_j  = sum_{q in last w} sum_{h in group} A[h,q,j]                (1) per kv head
//   p_j  = pool of s over the kernel's rows around j, j < n - w       (2) keeps a row's neighbours with it
//   keep = the last w rows, and the best others by p, cap in all      (3) ties: the earlier row
// Nothing is evicted if n <= cap. (1) sums over the group of grouped-query attention; the authors' code,
// which does not support it, chooses per query head. (2) is PyTorch's pool1d with padding kernel / 2: a mean
// counts rows beyond the borders as 0, a maximum leaves them out. A NaN counts as 0, so that it does not
// spread to its neighbours.
//
// TOVA's choice is window = 1, kernel = 1 and one set for all heads. schedule = pyramid is PyramidKV: with
// c = cap - w, layer l of L keeps max - l (max - min) / (L - 1) rows besides the window,
//   min = c / beta, max = 2 c - min                                   (4) c in the mean over layers
// and if max exceeds the n - w rows of the prompt, max = n - w and min = 2 c - max.
//
// Cost: one extra pass over the keys, 2 w n H c FLOPs per layer. The time to the first token does not shrink.
#include "policies/methods/snapkv.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"

namespace coppice {

Needs SnapKvPolicy::NeedsAt(Phase phase, int /*layer*/) const {
  if (phase != Phase::kPrefill) return {};
  return {.masses = {Mass()}, .unit_scores = {}};
}

bool SnapKvPolicy::RetainsAt(Phase phase, int /*layer*/) const { return phase == Phase::kPrefill; }

std::optional<Retained> SnapKvPolicy::Retain(const Observation& seen, const CacheScene& cache, Backend& be) {
  if (seen.phase != Phase::kPrefill) return std::nullopt;
  if (tokens_ == 0) tokens_ = seen.rows();  // at the first layer
  const int64_t budget = Budget(seen.layer, seen.layers, tokens_);
  if (cache.rows <= budget) return std::nullopt;
  const TensorView mass = seen.AttentionMass(Mass());  // (1)
  COPPICE_CHECK(mass.cols == cache.rows);
  const int64_t window = std::min<int64_t>(config_.window, budget);
  std::vector<std::vector<float>> scores;
  for (int64_t list = 0; list < mass.rows; ++list) {
    scores.push_back(Pooled(mass.Row<float>(list), window));  // (2)
  }
  Retained kept{.rows = RetainBest(scores, cache.pinned, {.budget = budget, .recent = window}, be)};  // (3)
  if (kept.rows.front().IsAll()) return std::nullopt;
  return kept;
}

int64_t SnapKvPolicy::Budget(int layer, int layers, int64_t tokens) const {
  const int64_t cap = std::max<int64_t>(config_.cap.Of(tokens), 1);
  const int64_t c = cap - config_.window;
  if (!config_.pyramid || layers < 2 || c <= 0 || cap >= tokens) return cap;
  int64_t least = c / config_.beta;
  int64_t most = 2 * c - least;  // (4)
  if (most > tokens - config_.window) {
    most = tokens - config_.window;
    least = 2 * c - most;
  }
  return config_.window + most - layer * (most - least) / (layers - 1);
}

std::vector<float> SnapKvPolicy::Pooled(std::span<const float> mass, int64_t window) const {
  std::vector<float> pooled(mass.begin(), mass.end());
  const int64_t prefix = static_cast<int64_t>(mass.size()) - window;
  const int64_t half = config_.kernel / 2;
  for (int64_t j = 0; j < prefix; ++j) {
    float sum = 0;
    float most = -std::numeric_limits<float>::infinity();
    for (int64_t i = std::max<int64_t>(j - half, 0); i < std::min(j + half + 1, prefix); ++i) {
      const float value = std::isnan(mass[static_cast<size_t>(i)]) ? 0 : mass[static_cast<size_t>(i)];
      sum += value;
      most = std::max(most, value);
    }
    pooled[static_cast<size_t>(j)] = config_.max_pool ? most : sum / static_cast<float>(config_.kernel);
  }
  return pooled;
}

namespace {

Keys SnapKvKeys(SnapKvConfig& c, const ModelShape& /*shape*/) {
  return {
      BudgetKey("cap", c.cap, "prompt tokens to keep in each layer's cache"),
      {"window", &c.window, 1, 4096, "this many last tokens score the others and are always kept", "",
       "1 to 4096, below cap"},
      {"kernel", &c.kernel, 1, 4095, "number of neighbouring tokens whose scores are pooled", "",
       "1 to 4095, odd"},
      {"pool", &c.max_pool, "avg max", "how they are pooled"},
      {"heads", &c.per_kv_head, "all kv",
       "one choice per kv head, or one for all (TOVA: with window=1,kernel=1)"},
      {"schedule", &c.pyramid, "flat pyramid", "the same cap in every layer, or larger caps in early layers"},
      {"beta", &c.beta, 1, 4096, "how steep the pyramid is"},
      MinKey(c.minimum),
  };
}

MethodInstance MakeSnapKv(const MethodSpec& spec, const MethodContext& context) {
  SnapKvConfig c;
  Keys keys = SnapKvKeys(c, context.shape);
  keys.Read(spec);
  if (c.cap.value == 0) throw PruneError("snapkv: cap=0 keeps nothing");
  if (!c.cap.IsShare() && c.cap.value <= c.window) {
    throw PruneError("snapkv: window={} leaves nothing of cap={}", c.window, c.cap.value);
  }
  if (c.kernel % 2 == 0) {
    throw PruneError("snapkv: kernel={} must be odd, as many rows on either side", c.kernel);
  }
  std::string fits;
  if (c.cap.Of(context.tokens) >= context.tokens) {
    fits = fmt::format("{} prompt tokens fit its cap of {}", context.tokens, c.cap.value);
  }
  return MakeInstance<SnapKvPolicy>(keys, {LengthReason(context, c.minimum), fits, WindowReason(context)}, c);
}

}  // namespace

MethodInfo SnapKvMethod() {
  return {"snapkv",
          "evict keys and values after prefill: keep those that the end of the prompt attends to",
          "SnapKV: LLM knows what you are looking for before generation, NeurIPS 2024, arXiv 2404.14469",
          kEvicts,
          HelpOf(&SnapKvKeys),
          &MakeSnapKv};
}

}  // namespace coppice
