// H2O: heavy-hitter oracle. No training. The cache of every layer and kv head stays at a fixed number of
// rows, in prefill and in decode:
//   s_j  = sum_q sum_{h in group} A[h,q,j]                           (1) over all queries since row j came
//   B    = int(heavy N) + int(recent N)                              (2) fixed by the prompt that entered
//   keep = the last int(recent N) rows, and the best others by s, B in all   (3) ties: the earlier row
// s of a row that leaves is forgotten. A step's attention is computed before its eviction, so the softmax
// sees B + 1 rows. The mean over the group of grouped-query attention ranks as the sum in (1) does.
//
// (1) favours rows that came early, which more queries see; `norm=count` divides by their number, as
// kvpress's ObservedAttention does. heavy = 0 is the paper's local-window control. Keys keep their positions
// (the paper's variant without streaming). Composed with a method that drops rows, N stays the prompt, and a
// layer with fewer rows than B keeps them all.
//
// Prefill stays dense and pays for the column sums of (1): a second pass over the keys, 2 n^2 H c flops per
// layer.
#include "policies/h2o.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/error.h"

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

// Rows beyond those with a sum are new, as many as there were queries: of n new rows, row i was seen by the
// n - i queries from its own on, and the old rows by all n.
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

// `keep` is both budgets together: it halves between those that are not given.
H2oConfig ReadConfig(SpecReader& read) {
  constexpr double kNotGiven = -1;
  const TokenBudget keep = ReadBudget(read, "h2o", "keep", 0.4);
  H2oConfig config{.heavy = ReadBudget(read, "h2o", "heavy", kNotGiven),
                   .recent = ReadBudget(read, "h2o", "recent", kNotGiven)};
  const bool halves = config.heavy.value == kNotGiven || config.recent.value == kNotGiven;
  if (halves && !keep.IsShare() && keep.value < 4) {
    throw Error("--prune h2o: keep={} is too few tokens to halve; set heavy and recent", keep.value);
  }
  if (config.heavy.value == kNotGiven) {
    config.heavy.value = keep.IsShare() ? keep.value / 2 : std::floor(keep.value / 2);
  }
  if (config.recent.value == kNotGiven) {
    config.recent.value = keep.IsShare() ? keep.value / 2 : std::ceil(keep.value / 2);
  }
  if (config.heavy.value == 0 && config.recent.value == 0) {
    throw Error("--prune h2o: heavy=0,recent=0 keeps nothing");
  }
  config.per_query = read.Choice("norm", {"sum", "count"}) == "count";
  return config;
}

MethodInstance MakeH2o(const MethodSpec& spec, const MethodContext& context) {
  SpecReader read(spec);
  const H2oConfig config = ReadConfig(read);
  const int64_t minimum = read.Integer("min", 1024, 0, kManyTokens);
  read.RefuseUnknownKeys();

  const int64_t budget = config.heavy.Of(context.tokens) + config.recent.Of(context.tokens);
  const bool shares = config.heavy.IsShare() && config.recent.IsShare();
  const double share = std::min(1.0, config.heavy.value + config.recent.value);
  const double keep = shares ? share : static_cast<double>(budget);
  MethodInstance made;
  made.settings = fmt::format("h2o:keep={:.12g},heavy={},recent={},norm={},min={}", keep, config.heavy.value,
                              config.recent.value, config.per_query ? "count" : "sum", minimum);
  // Shares that add up to 1 are the whole prompt, even where each of them rounds down.
  std::string fits;
  if (budget >= context.tokens || (shares && share == 1)) {
    fits = fmt::format("{} prompt tokens fit its budget", context.tokens);
  }
  made.reason = FirstReason({LengthReason(context, minimum), fits, WindowReason(context)});
  if (made.reason.empty()) made.policy = std::make_unique<H2oPolicy>(config);
  return made;
}

}  // namespace

MethodInfo H2oMethod() {
  return {
      "h2o",
      "evict keys and values: keep those that drew the most attention so far, and the recent ones",
      "H2O: heavy-hitter oracle for efficient generative inference of large language models, NeurIPS 2023, "
      "arXiv 2306.14048",
      kEvicts,
      {{"keep", "0.4", "a share up to 1, or 4 tokens up",
        "tokens in the cache; halves between heavy and recent where these are not set"},
       {"heavy", "keep / 2", "a share up to 1, or tokens",
        "kept for the attention they drew; 0 leaves a local window"},
       {"recent", "keep / 2", "a share up to 1, or tokens", "kept for being last"},
       {"norm", "sum", "sum, count", "rank by the sum of attention, or by its mean over the queries"},
       {"min", "1024", "0 up", "shorter prompts run dense"}},
      &MakeH2o};
}

}  // namespace coppice
