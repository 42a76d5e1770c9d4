// FastKV: the layers behind layer t compute a share of the prompt's tokens, and every layer caches a smaller
// one. The two shares are independent. No training.
//
//   p_g,j = SnapKV's pooled score of key j in kv head g: the last w queries, mean over `kernel` rows   (1)
//   keep  = the last w rows and the best others by sum_g p_g,j of layer t, `keep` N in all             (2)
//   S_g   = in every layer: the last w rows and the best others by p_g, `cache` N in all               (3)
// Rows outside (2) are dropped before layer t + 1; they have no keys from there on. (3) evicts after each
// layer's attention in prefill (file head of snapkv.cpp, which computes it); decode never evicts. N counts
// the tokens that entered the model, in every layer. Ties: the earlier row. Shares are rounded down, as in
// the authors' code.
//
// In public copies of the authors' code a prompt that fits a cache's budget keeps its rows for later layers
// as well. Here (2) and (3) are independent: cache=1 is token-selective propagation alone.
//
// Cost of (1): one extra pass over the keys, 2 w n H c FLOPs per layer.
//
// Source: FastKV: decoupling of context reduction and KV cache compression for prefill-decoding acceleration,
// arXiv 2502.01068, and its repository: t = 15 of Llama-3.1-8B's 32 layers, a fifth and a tenth of the
// prompt, w = 8, kernel = 7.
#include "policies/methods/fastkv.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "policies/presets.h"
#include "policies/stages.h"

namespace coppice {

FastKvPolicy::FastKvPolicy(const FastKvConfig& config)
    : config_(config),
      evict_({.cap = config.cache,
              .window = config.window,
              .kernel = config.kernel,
              .max_pool = config.max_pool}) {}

Needs FastKvPolicy::NeedsAt(Phase phase, int layer) const { return evict_.NeedsAt(phase, layer); }  // (1)

bool FastKvPolicy::RetainsAt(Phase phase, int layer) const { return evict_.RetainsAt(phase, layer); }

std::optional<Retained> FastKvPolicy::Retain(const Observation& seen, const CacheScene& cache, Backend& be) {
  return evict_.Retain(seen, cache, be);  // (3)
}

TokenSet FastKvPolicy::BeforeLayer(const Observation& seen, Backend& be) {
  const int64_t rows = seen.rows();
  const int64_t budget = std::max<int64_t>(config_.keep.Of(seen.entered_tokens()), config_.window);
  if (seen.layer != config_.layer + 1 || budget >= rows) return TokenSet::All(rows);
  const TensorView mass = seen.AttentionMass(evict_.Mass());
  std::vector<float> sum(static_cast<size_t>(rows));
  for (int64_t list = 0; list < mass.rows; ++list) {
    const std::vector<float> pooled = evict_.Pooled(mass.Row<float>(list), config_.window);
    for (size_t row = 0; row < sum.size(); ++row) sum[row] += pooled[row];
  }
  return BestRows(sum, budget, 0, config_.window, be);  // (2)
}

namespace {

Keys FastKvKeys(FastKvConfig& c, const ModelShape& shape) {
  c.layer = FastKvLayer(shape);
  return {
      {"layer", &c.layer, 0, std::max(shape.layer_count() - 2, 0),
       "tokens are dropped after this layer, by its attention", "15 L / 32", "0 to L - 2"},
      BudgetKey("keep", c.keep, "prompt tokens that later layers compute"),
      BudgetKey("cache", c.cache, "prompt tokens to keep in each layer's cache"),
      {"window", &c.window, 1, 4096, "this many last tokens score the others and are always kept"},
      {"kernel", &c.kernel, 1, 4095, "number of neighbouring tokens whose scores are pooled", "",
       "1 to 4095, odd"},
      {"pool", &c.max_pool, "avg max", "how they are pooled"},
      MinKey(c.minimum),
  };
}

MethodInstance MakeFastKv(const MethodSpec& spec, const MethodContext& context) {
  FastKvConfig c;
  Keys keys = FastKvKeys(c, context.shape);
  keys.Read(spec);
  if (c.keep.value == 0) throw PruneError("fastkv: keep=0 keeps nothing");
  if (c.cache.value == 0) throw PruneError("fastkv: cache=0 keeps nothing");
  if (c.kernel % 2 == 0) {
    throw PruneError("fastkv: kernel={} must be odd, as many rows on either side", c.kernel);
  }
  const int64_t tokens = context.tokens;
  const bool drops =
      std::max<int64_t>(c.keep.Of(tokens), c.window) < tokens && context.shape.layer_count() > 1;
  const bool evicts = std::max<int64_t>(c.cache.Of(tokens), 1) < tokens;
  const std::string fits =
      drops || evicts ? "" : fmt::format("{} prompt tokens fit what it always keeps", tokens);
  return MakeInstance<FastKvPolicy>(keys, {LengthReason(context, c.minimum), fits, WindowReason(context)}, c);
}

}  // namespace

MethodInfo FastKvMethod() {
  return {
      "fastkv",
      "late layers compute the tokens that a middle layer attends to; every cache keeps fewer",
      "FastKV: decoupling of context reduction and KV cache compression for prefill-decoding acceleration, "
      "arXiv 2502.01068",
      kDropsRows | kEvicts,
      HelpOf(&FastKvKeys),
      &MakeFastKv};
}

}  // namespace coppice
