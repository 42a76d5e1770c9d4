// FTP: FFN token pruning for long prompts. No training, prefill only, the KV cache stays whole.
//
// Over n tokens the FFN costs 6 n d I FLOPs. FTP runs it only on the tokens that the prompt's end attends to:
//   s_i  = sum_h sum_{q in last Nq} A[h,q,i]                      (1) importance
//   S    = smallest set with sum_{i in S} s_i >= eta sum_i s_i    (2) of the middle P <= i < n - Nq
//   h'_i = h_i + FFN(norm(h_i)) if i in S, else h_i               (3) the residual carries the rest
// The first P and the last Nq tokens always run. Backend::SmallestSetWithMass computes (2) and states the tie
// rule. The paper's pseudo-code compares with ">", its equation 3 with ">="; this follows the equation. eta =
// 1 is dense.
//
// choose=random is the control of the paper's table 3: in each layer the same number of the middle's rows as
// in (2), at random.
//
// Not in the paper: fill=mean. A residual that misses an FFN makes every later key of its token wrong
// (docs/quality.md), so
//   h'_i = h_i + mean over the middle's j in S of FFN(norm(h_j))  if i is not in S    (4)
//
// Composed with a method that drops rows, (1) and (2) range over the rows that are left, and P stays a limit
// on positions.
#include "policies/methods/ftp.h"

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

Keys FtpKeys(FtpConfig& c, const ModelShape& shape) {
  c.eta = FtpEta(shape);
  c.dense = FtpDenseLayers(shape);
  return {
      {"eta", &c.eta, kAboveZero, 1, "share of the middle's attention mass that runs the FFN; 1 is dense",
       "by model: 0.90 to 0.95"},
      {"dense", &c.dense, 0, shape.layer_count(), "layers below this one stay dense",
       "10 where L >= 28, else round(10 L / 32)", "0 to L"},
      {"first", &c.first, 0, kManyTokens, "positions below this always run the FFN"},
      {"last", &c.num_queries, 1, 4096, "this many last tokens always run the FFN"},
      RowScoresKeys(c.scores, shape, "as last"),
      {"fill", &c.fill_mean, "none mean", "skipped tokens get nothing, or the mean FFN output of the others"},
      {"choose", &c.random, "mass random", "random: the same number of tokens, chosen at random (control)"},
      {"seed", &c.seed, 0, kMaxSeed, "of the random choice"},
      MinKey(c.minimum),
  };
}

MethodInstance MakeFtp(const MethodSpec& spec, const MethodContext& context) {
  FtpConfig c;
  Keys keys = FtpKeys(c, context.shape);
  keys.Read(spec);
  if (!keys.Given("queries")) c.scores.queries = c.num_queries;
  FindSentences(spec.name, context, c.scores);
  c.question.assign(context.question.begin(), context.question.end());
  return MakeInstance<FtpPolicy>(keys,
                                 {LengthReason(context, c.minimum),
                                  NothingToDrop(context, c.first + c.num_queries), WindowReason(context)},
                                 c);
}

}  // namespace

MethodInfo FtpMethod() {
  return {"ftp",
          "skip the FFN for tokens that the end of the prompt does not attend to; the cache stays whole",
          "FTP: efficient prefilling for long-context LLM inference via FFN token pruning, openreview "
          "fL8Zp8o6RL",
          kSkipsFfn,
          HelpOf(&FtpKeys),
          &MakeFtp};
}

}  // namespace coppice
