// H2O: heavy-hitter oracle. No training. The cache of every layer and kv head stays at a fixed number of
// rows, in prefill and in decode:
//   s_j  = sum_q sum_{h in group} A[h,q,j]                           (1) over all queries since row j exists
//   B    = int(heavy N) + int(recent N)                              (2) fixed by the prompt that entered
//   keep = the last int(recent N) rows, and the best others by s, B in all   (3) ties: the earlier row
// The sum of an evicted row is discarded. A step's attention runs before its eviction, so the softmax ranges
// over B + 1 rows. A mean over the group of grouped-query attention would rank the rows as the sum in (1)
// does.
//
// (1) favours early rows, which more queries see; `norm=count` divides by the number of queries, as kvpress's
// ObservedAttention does. heavy = 0 is the paper's local-window control. Keys keep their positions (the
// paper's variant without streaming). Composed with a method that drops rows, N stays the length of the
// prompt, and a layer with fewer than B rows keeps them all.
//
// Prefill is dense and pays for the column sums of (1): a second pass over the keys, 2 n^2 H c FLOPs per
// layer.
#include "policies/methods/h2o.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace coppice {

Needs::Mass H2oPolicy::Mass(Phase phase) {
  return {.queries = phase == Phase::kPrefill ? Needs::kAllQueries : 1, .per_kv_head = true};
}

Needs H2oPolicy::NeedsAt(Phase phase, int /*layer*/) const {
  return {.masses = {Mass(phase)}, .unit_scores = {}};
}

bool H2oPolicy::RetainsAt(Phase /*phase*/, int /*layer*/) const { return true; }

std::optional<Retained> H2oPolicy::Retain(const Observation& seen, const CacheScene& cache, Backend& be) {
  const auto layer = static_cast<size_t>(seen.layer);
  if (sums_.size() <= layer) sums_.resize(layer + 1);
  if (tokens_ == 0) tokens_ = seen.rows();  // prefill, at the first layer
  Sums& sums = sums_[layer];
  const TensorView mass = seen.AttentionMass(Mass(seen.phase));
  COPPICE_CHECK(mass.cols == cache.rows);
  Accumulate(mass, sums);  // (1)

  const int64_t recent = config_.recent.Of(tokens_);
  const int64_t budget = config_.heavy.Of(tokens_) + recent;  // (2)
  if (cache.rows <= budget) return std::nullopt;
  Retained kept{.rows = RetainBest(config_.per_query ? MassPerQuery(sums) : sums.mass, cache.pinned,
                                   {.budget = budget, .recent = recent}, be)};  // (3)
  if (kept.rows.front().IsAll()) return std::nullopt;
  for (size_t list = 0; list < kept.rows.size(); ++list) {
    size_t to = 0;
    for (const int32_t row : kept.rows[list].rows()) {
      sums.mass[list][to] = sums.mass[list][static_cast<size_t>(row)];
      sums.queries[list][to++] = sums.queries[list][static_cast<size_t>(row)];
    }
    sums.mass[list].resize(to);
    sums.queries[list].resize(to);
  }
  return kept;
}

// Rows without a sum are new, one per query. If n rows are new, n - i queries saw new row i, and all n
// queries saw the old rows.
void H2oPolicy::Accumulate(const TensorView& mass, Sums& sums) const {
  const auto lists = static_cast<size_t>(mass.rows);
  const auto rows = static_cast<size_t>(mass.cols);
  sums.mass.resize(lists);
  sums.queries.resize(lists);
  for (size_t list = 0; list < lists; ++list) {
    std::vector<float>& sum = sums.mass[list];
    std::vector<float>& queries = sums.queries[list];
    const size_t old = sum.size();
    COPPICE_CHECK(old <= rows);
    sum.resize(rows);
    queries.resize(rows);
    const std::span<const float> added = mass.Row<float>(static_cast<int64_t>(list));
    for (size_t row = 0; row < rows; ++row) {
      sum[row] += added[row];
      queries[row] += static_cast<float>(rows - std::max(row, old));
    }
  }
}

std::vector<std::vector<float>> H2oPolicy::MassPerQuery(const Sums& sums) {
  std::vector<std::vector<float>> mean = sums.mass;
  for (size_t list = 0; list < mean.size(); ++list) {
    for (size_t row = 0; row < mean[list].size(); ++row) mean[list][row] /= sums.queries[list][row];
  }
  return mean;
}

namespace {

struct H2oSettings {
  H2oConfig config = {};
  TokenBudget keep = {0.4};  // of both budgets
  int64_t minimum = 1024;
};

Keys H2oKeys(H2oSettings& s, const ModelShape& /*shape*/) {
  H2oConfig& c = s.config;
  return {
      BudgetKey("keep", s.keep, "cache budget; half for heavy, half for recent, unless these are set", "",
                "a share up to 1, or 4 tokens up"),
      BudgetKey("heavy", c.heavy, "budget for the most attended tokens; 0 keeps a local window only",
                "keep / 2"),
      BudgetKey("recent", c.recent, "budget for the last tokens", "keep / 2"),
      {"norm", &c.per_query, "sum count", "rank by the sum of attention, or by its mean over the queries"},
      MinKey(s.minimum),
  };
}

// Gives each budget that is not set half of `keep`, then sets `keep` to both budgets together.
void Finish(const Keys& keys, int64_t tokens, H2oSettings& s) {
  TokenBudget& heavy = s.config.heavy;
  TokenBudget& recent = s.config.recent;
  const double half = s.keep.value / 2;
  const bool halves = !keys.Given("heavy") || !keys.Given("recent");
  if (halves && !s.keep.IsShare() && s.keep.value < 4) {
    throw PruneError("h2o: keep={} is too few tokens to halve; set heavy and recent", s.keep.value);
  }
  if (!keys.Given("heavy")) heavy.value = s.keep.IsShare() ? half : std::floor(half);
  if (!keys.Given("recent")) recent.value = s.keep.IsShare() ? half : std::ceil(half);
  if (heavy.value == 0 && recent.value == 0) throw PruneError("h2o: heavy=0,recent=0 keeps nothing");
  if (heavy.IsShare() && recent.IsShare()) {
    // Without the rounding error of the sum: 0.3, not 0.30000000000000004.
    s.keep.value = std::min(1.0, std::round((heavy.value + recent.value) * 1e12) / 1e12);
  } else {
    s.keep.value = static_cast<double>(heavy.Of(tokens) + recent.Of(tokens));
  }
}

MethodInstance MakeH2o(const MethodSpec& spec, const MethodContext& context) {
  H2oSettings s;
  Keys keys = H2oKeys(s, context.shape);
  keys.Read(spec);
  Finish(keys, context.tokens, s);
  const H2oConfig& c = s.config;
  // Shares that add up to 1 keep the whole prompt, even where each of them rounds down.
  const bool whole = c.heavy.IsShare() && c.recent.IsShare() && c.heavy.value + c.recent.value >= 1;
  std::string fits;
  if (whole || c.heavy.Of(context.tokens) + c.recent.Of(context.tokens) >= context.tokens) {
    fits = fmt::format("{} prompt tokens fit its budget", context.tokens);
  }
  return MakeInstance<H2oPolicy>(keys, {LengthReason(context, s.minimum), fits, WindowReason(context)}, c);
}

}  // namespace

MethodInfo H2oMethod() {
  return {
      "h2o",
      "evict keys and values: keep those that received the most attention so far, and the recent ones",
      "H2O: heavy-hitter oracle for efficient generative inference of large language models, NeurIPS 2023, "
      "arXiv 2306.14048",
      kEvicts,
      HelpOf(&H2oKeys),
      &MakeH2o};
}

}  // namespace coppice
