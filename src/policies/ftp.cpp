// FTP: FFN token pruning for long prompts. No training, prefill only, the KV cache stays whole.
//
// Over n tokens the FFN costs 6 n d I flops. FTP runs it only on the tokens that the prompt's end looks at:
//   s_i  = sum_h sum_{q in last Nq} A[h,q,i]                      (1) importance
//   S    = smallest set with sum_{i in S} s_i >= eta sum_i s_i    (2) how many, of the middle P <= i < n - Nq
//   h'_i = h_i + FFN(norm(h_i)) if i in S, else h_i               (3) the residual carries the rest
// The first P and the last Nq tokens always run. (2) and the tie rule: Backend::SmallestSetWithMass. The
// paper's pseudo-code compares with ">", its equation 3 with ">="; the equation holds here, and eta = 1 is
// dense.
//
// choose=random is the control of the paper's table 3: in each layer as many of the middle's rows as (2)
// would take, at random.
//
// Not in the paper: fill=mean. A residual without its FFN is off in every later key (docs/quality.md), so
//   h'_i = h_i + mean over the middle's j in S of FFN(norm(h_j))  if i is not in S    (4)
//
// Composed with a method that drops rows, (1) and (2) range over the survivors, and P stays a limit on
// positions.
#include "policies/ftp.h"

#include <fmt/core.h>

#include <algorithm>

#include "policies/presets.h"
#include "policies/random_subset.h"

namespace coppice {

LayerPoint FtpPolicy::FirstChoice() const {
  return config_.eta >= 1 ? kNoPoint : LayerPoint{config_.dense, true};
}

Needs FtpPolicy::NeedsAt(Phase phase, int layer) const {
  if (phase != Phase::kPrefill || !Scores(layer)) return {};
  return {.masses = {Mass()}, .unit_scores = {}};  // (1)
}

std::pair<int64_t, int64_t> FtpPolicy::Middle(const Observation& seen) const {
  const auto begin = std::lower_bound(seen.positions.begin(), seen.positions.end(), config_.first);
  return {begin - seen.positions.begin(), seen.rows() - config_.num_queries};
}

TokenSet FtpPolicy::RunFfn(const Observation& seen, Backend& be) {
  const int64_t rows = seen.rows();
  if (!Scores(seen.layer)) return TokenSet::All(rows);
  const auto [first, end] = Middle(seen);
  const int64_t middle = end - first;
  if (middle <= 0) return TokenSet::All(rows);
  const std::vector<float> sum =
      sum_.Add(seen.layer, seen.AttentionMass(Mass()).Row<float>(0), seen.positions);  // (1)
  if (IsDense(seen.layer)) return TokenSet::All(rows);
  const std::vector<float> mass = config_.scores.Spread(sum, seen.positions);
  TokenSet chosen =
      be.SmallestSetWithMass(TensorView(mass.data() + first, DType::kF32, 1, middle), config_.eta);  // (2)
  if (config_.random) chosen = RandomSubset(chosen.size(), middle, SeedOfLayer(config_.seed, seen.layer));
  return chosen.Shift(first, rows)
      .UnionFirst(first)
      .UnionLast(config_.num_queries);  // Layer::Ffn applies (3)
}

TokenSet FtpPolicy::FillFrom(const Observation& seen, const TokenSet& ran) {
  const auto [first, end] = Middle(seen);
  if (!config_.fill_mean || ran.IsAll() || first >= end) return TokenSet::None(ran.universe());
  return ran.Intersect(TokenSet::Range(first, end, ran.universe()));  // (4)
}

namespace {

MethodInstance MakeFtp(const MethodSpec& spec, const MethodContext& context) {
  const ModelShape& shape = context.shape;
  SpecReader read(spec);
  FtpConfig config;
  config.eta = read.Number("eta", FtpEta(shape), 1e-6, 1);
  config.dense = static_cast<int>(read.Integer("dense", FtpDenseLayers(shape), 0, shape.layers));
  config.first = static_cast<int>(read.Integer("first", config.first, 0, kManyTokens));
  config.num_queries = static_cast<int>(read.Integer("last", config.num_queries, 1, 4096));
  config.scores = ReadRowScores(read, {.queries = config.num_queries}, context);
  config.question.assign(context.question.begin(), context.question.end());
  config.fill_mean = read.Choice("fill", {"none", "mean"}) == "mean";
  config.random = read.Choice("choose", {"mass", "random"}) == "random";
  config.seed = static_cast<uint64_t>(read.Integer("seed", 0, 0, kMaxSeed));
  const int64_t minimum = read.Integer("min", 1024, 0, kManyTokens);
  read.RefuseUnknownKeys();

  MethodInstance made;
  made.settings = fmt::format("ftp:eta={},dense={},first={},last={},{},fill={},choose={},seed={},min={}",
                              config.eta, config.dense, config.first, config.num_queries,
                              RowScoresText(config.scores), config.fill_mean ? "mean" : "none",
                              config.random ? "random" : "mass", config.seed, minimum);
  made.reason = FirstReason({LengthReason(context, minimum), WindowReason(context)});
  if (made.reason.empty()) made.policy = std::make_unique<FtpPolicy>(std::move(config));
  return made;
}

}  // namespace

MethodInfo FtpMethod() {
  MethodInfo info{
      "ftp",
      "skip the FFN for tokens that the prompt's end does not look at; the cache stays whole",
      "FTP: efficient prefilling for long-context LLM inference via FFN token pruning, openreview "
      "fL8Zp8o6RL",
      kSkipsFfn,
      {{"eta", "by model: 0.90 to 0.95", "0 to 1",
        "share of the middle's attention mass that runs the FFN; 1 is dense"},
       {"dense", "10 where L >= 28, else round(10 L / 32)", "0 to L", "layers below this one stay dense"},
       {"first", "100", "0 up", "positions below this always run"},
       {"last", "50", "1 to 4096", "last tokens, which always run"},
       {"fill", "none", "none, mean", "what skipped rows get: nothing, or the mean output of those that ran"},
       {"choose", "mass", "mass, random", "random: as many tokens at random, as a control"},
       {"seed", "0", "0 up", "of the random choice"},
       {"min", "1024", "0 up", "shorter prompts run dense"}},
      &MakeFtp};
  AddRowScoresKeys("as last", "fill", info.keys);
  return info;
}

}  // namespace coppice
