// coppice: the engine's own method. Token pruning for long prompts in a few stages, each of which scores with
// the question's queries and the strongest head. No training.
//
// At stage s, before layer l_s, with the attention of layer l_s - 1 over the tokens A that are left:
//   s_i  = pool over heads and the queries of stage s of softmax(q . k_i / sqrt(c))    (1) sinks take no part
//   w_i  = max of s over the tokens within widen_s positions of i                      (2)
//   n    = the smallest number of best tokens that hold mass_s of the sum of w          (3)
//   A'   = sinks, the question's end, the prompt's end, and the n best by w;            (4) ties: earlier
//          at least floor and at most max(keep_s N, floor) in all
// (3) and the n best of (4) are of the tokens that have no fixed place. With mass_s = 1, (4) keeps as many as
// it may. With sum and whole, (1) is a sum over the last layers, and (2) spreads over sentences
// (row_scores.h).
//
// Why each part (measured on SmolLM2, docs/quality.md):
// - The prompt's end often does not look at a fact's next digit, so a chosen token needs its neighbours (2):
//   48 on either side keep a UUID, 16 lose it.
// - A share of a short prompt has no room for the fixed tokens and two neighbourhoods, hence the floor (4).
// - Where several places of one form compete, an early layer does not know yet which one is asked for: they
//   hold equal shares of the attention. A quarter of the prompt then has no room for all of them, half of it
//   has. (3) keeps as many as hold the attention. It is off by default (mass 1): on SmolLM2 the scores are so
//   flat that 0.9 saves little and 0.8 loses answers.
// - In the first third of the layers no single query finds the tokens that the answer needs. 48 queries
//   together do, each through one head, so (1) takes the maximum. 16 do not reach over a question with
//   several keys.
// - The first tokens (sinks) would take most of each head's mass if they took part in (1).
// - Dropping a row hurts less than skipping its FFN: a row that missed an FFN gives wrong keys in every later
//   layer.
//
// In decode every step attends all tokens that were kept. At stage s the current token's attention in layer
// l_s - 1 also covers tokens parked there. If they hold more than revive_mass of it, the best of them by (2)
// come back, at most revive_cap:
//   m    = sum of s over parked tokens / sum of s                                            (5)
//   back = the best by w among parked tokens, if m > revive_mass                             (6)
//
// Bound over N prompt tokens, L layers: a layer between stages s and s + 1 costs at most what it costs for
// keep_s N tokens. Cost per stage: queries x |A| keys, 2 queries |A| H c FLOPs, and one selection.
#include "policies/methods/coppice.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "policies/presets.h"
#include "policies/stages.h"

namespace coppice {

CoppicePolicy::CoppicePolicy(CoppiceConfig config) : config_(std::move(config)) {
  for (const CoppiceStage& stage : config_.stages) sums_.emplace_back(stage.scores.sum);
}

const CoppiceStage* CoppicePolicy::StageBefore(int layer) const {
  for (const CoppiceStage& stage : config_.stages) {
    if (stage.layer == layer && stage.Drops()) return &stage;
  }
  return nullptr;
}

LayerPoint CoppicePolicy::FirstChoice() const {
  for (const CoppiceStage& stage : config_.stages) {
    if (stage.Drops()) return {stage.layer, false};
  }
  return kNoPoint;
}

Needs CoppicePolicy::NeedsAt(Phase phase, int layer) const {
  Needs needs;
  if (phase == Phase::kDecode && !config_.revive) return needs;
  for (const CoppiceStage& stage : config_.stages) {
    if (!stage.Drops() || !stage.scores.Counts(phase, layer, stage.layer - 1)) continue;
    needs.Merge({.masses = {stage.scores.Need(phase, config_.question)}, .unit_scores = {}});  // (1)
  }
  return needs;
}

bool CoppicePolicy::AlwaysStays(int64_t position, int64_t tail) const {
  if (position < config_.sink || position >= tail) return true;
  int64_t left = config_.last;  // question tokens that stay, counted from the question's end
  for (auto span = config_.question.rbegin(); span != config_.question.rend() && left > 0; ++span) {
    if (position < span->end && position >= std::max(span->begin, span->end - left)) return true;
    left -= span->end - span->begin;
  }
  return false;
}

namespace {

// (3): the number of rows without a fixed place that hold `mass` of what such rows hold. `ranks`: the rows'
// widened scores, infinite for those that stay anyway.
int64_t Holding(std::vector<float> ranks, double mass, Backend& be) {
  std::erase(ranks, std::numeric_limits<float>::infinity());
  const auto rows = static_cast<int64_t>(ranks.size());
  return be.SmallestSetWithMass(TensorView(ranks.data(), DType::kF32, 1, rows), mass).size();
}

}  // namespace

TokenSet CoppicePolicy::BeforeLayer(const Observation& seen, Backend& be) {
  std::vector<float> s;  // of the stage before this layer
  for (size_t i = 0; i < config_.stages.size(); ++i) {
    const CoppiceStage& of = config_.stages[i];
    if (!of.Drops() || !of.scores.Counts(Phase::kPrefill, seen.layer - 1, of.layer - 1)) continue;
    const Needs::Mass mass = of.scores.Need(Phase::kPrefill, config_.question);
    std::vector<float> sum = sums_[i].Add(seen.layer, seen.AttentionMass(mass).Row<float>(0), seen.positions);
    if (of.layer == seen.layer) s = std::move(sum);
  }
  const CoppiceStage* stage = StageBefore(seen.layer);
  if (stage == nullptr) return TokenSet::All(seen.rows());
  std::vector<float> w = stage->scores.Spread(s, seen.positions);  // (2)
  const int64_t tail = seen.LastEntered(config_.last);
  int64_t always = 0;
  for (size_t row = 0; row < w.size(); ++row) {
    w[row] =
        std::min(w[row], std::numeric_limits<float>::max());  // only rows that always stay rank at infinity
    if (!AlwaysStays(seen.positions[row], tail)) continue;
    w[row] = std::numeric_limits<float>::infinity();
    ++always;
  }
  const int64_t most = std::max({CeilShare(stage->keep, seen.entered_tokens()), config_.floor, always});
  const int64_t count = std::min(most, std::max(config_.floor, always + Holding(w, stage->mass, be)));
  const TokenSet best = be.TopK(TensorView(w.data(), DType::kF32, 1, seen.rows()), count);  // (4)
  return best.UnionLast(1);
}

DecodePoint CoppicePolicy::AttendsAt(int layer) const {
  return config_.revive && StageBefore(layer) != nullptr ? DecodePoint::kBeforeLayer : DecodePoint::kNone;
}

TokenSet CoppicePolicy::Attend(const Observation& seen, const Candidates& candidates, Backend& be) {
  const CoppiceStage& stage = *StageBefore(seen.layer);
  const auto count = static_cast<int64_t>(candidates.positions.size());
  const std::span<const float> s = seen.AttentionMass(stage.scores.Need(Phase::kDecode, {})).Row<float>(0);
  const std::vector<float> w = stage.scores.Spread(s, seen.positions);
  // The candidates were all attended. Both lists ascend: walk them together.
  std::vector<float> rank(candidates.positions.size(), -std::numeric_limits<float>::infinity());
  double all = 0;
  double parked = 0;
  int64_t parked_count = 0;
  for (size_t i = 0, row = 0; i < rank.size(); ++i) {
    while (row < s.size() && seen.positions[row] < candidates.positions[i]) ++row;
    if (row == s.size() || seen.positions[row] != candidates.positions[i]) continue;
    all += s[row];
    if (candidates.parked[i] == 0) continue;
    parked += s[row];
    rank[i] = std::min(w[row], std::numeric_limits<float>::max());
    ++parked_count;
  }
  std::vector<int32_t> chosen;
  const bool revives = parked > config_.revive_mass * all;  // (5); a NaN revives nothing
  const int64_t back = revives ? std::min<int64_t>(config_.revive_cap, parked_count) : 0;
  TokenSet best = be.TopK(TensorView(rank.data(), DType::kF32, 1, count), back);  // (6)
  for (int64_t i = 0; i < count; ++i) {
    if (candidates.parked[static_cast<size_t>(i)] == 0 || best.Contains(i))
      chosen.push_back(static_cast<int32_t>(i));
  }
  return TokenSet::Of(std::move(chosen), count);
}

namespace {

struct CoppiceSettings {
  CoppiceConfig config = {};
  // One value per stage, or one for all. The defaults are for three stages.
  std::vector<int> layers = {};
  std::vector<double> keep = {0.5, 0.4, 0.3};
  std::vector<double> mass = {1};
  std::vector<int> queries = {48};
  std::vector<std::string> pool = {"max"};
  std::vector<int> widen = {48};
  std::vector<std::string> ask = {"question"};
  std::vector<int> sum = {1};
  std::vector<std::string> whole = {"none"};
  int skip_sink = 4;
  int64_t minimum = 1024;
};

Keys CoppiceKeys(CoppiceSettings& s, const ModelShape& shape) {
  CoppiceConfig& c = s.config;
  s.layers = CoppiceLayers(shape);
  c.revive = !shape.HasStates();  // a dropped token cannot return into a state
  return {
      LayersKey(s.layers, shape, "tokens are dropped before these layers", "round(L {0.28,0.5,0.8})")
          .NoValues("none"),
      {"keep", &s.keep, kAboveZero, 1, "share of the prompt to keep, at most"},
      {"mass", &s.mass, kAboveZero, 1,
       "keep as many tokens as hold this share of the question's attention; 1: as many as `keep` says"},
      {"queries", &s.queries, 1, 4096, "number of queries that score"},
      {"pool", &s.pool, "max mean", "how scores of heads and queries are pooled"},
      {"widen", &s.widen, 0, 4096, "a token keeps this many neighbours on either side"},
      {"ask", &s.ask, "question end", "score with the last queries of the question, or of the prompt"},
      {"skip_sink", &s.skip_sink, 0, 4096, "leave keys below this position out of the softmax that scores"},
      {"sum", &s.sum, 1, std::max(shape.layer_count(), 1),
       "number of layers before the choice whose scores are summed (prefill)", "",
       "1 to L, one or one per layer"},
      {"whole", &s.whole, "none sentence", "sentence: a token takes the best score of its sentence"},
      {"floor", &c.floor, 0, kManyTokens, "a stage keeps at least this many tokens"},
      {"sink", &c.sink, 0, kManyTokens, "positions below this are always kept"},
      {"last", &c.last, 1, kManyTokens, "this many last tokens of prompt and question are always kept"},
      {"revive", &c.revive, "none aux", "aux: dropped tokens can come back while generating; none: never"},
      {"revive_mass", &c.revive_mass, 0, 1,
       "dropped tokens come back if they hold more than this share of attention"},
      {"revive_cap", &c.revive_cap, 0, kManyTokens,
       "most tokens that come back per stage and generated token"},
      MinKey(s.minimum),
  };
}

// With `keep` and without `mass`, `keep` is a fixed share. Such settings were found with other defaults of
// the other keys, and keep them: many queries score in the first two stages, one query in the last.
void DefaultsOfShares(const Keys& keys, const ModelShape& shape, CoppiceSettings& s) {
  if (!keys.Given("keep") || keys.Given("mass")) return;
  s.mass = {1};
  if (!keys.Given("layers")) s.layers = CoppiceShareLayers(shape);
  if (!keys.Given("queries")) s.queries = {16, 16, 1};
  if (!keys.Given("pool")) s.pool = {"max", "max", "mean"};
  if (!keys.Given("ask")) s.ask = {"question", "question", "end"};
}

// Makes `values` one per stage. Defaults are for three stages: fewer stages take the last values, more stages
// repeat the last value.
template <typename T>
void PerStage(const Keys& keys, std::string_view key, size_t stages, std::vector<T>& values) {
  if (keys.Given(key) && stages > 0) return FillStages(values, stages, "coppice", key);
  const size_t wanted = std::max<size_t>(stages, 1);
  if (wanted > values.size()) values.resize(wanted, T(values.back()));
  values.erase(values.begin(), values.end() - static_cast<std::ptrdiff_t>(wanted));
}

// Sets the config's stages.
void Finish(const Keys& keys, const MethodContext& context, CoppiceSettings& s) {
  DefaultsOfShares(keys, context.shape, s);
  const size_t stages = s.layers.size();
  PerStage(keys, "keep", stages, s.keep);
  PerStage(keys, "mass", stages, s.mass);
  PerStage(keys, "queries", stages, s.queries);
  PerStage(keys, "pool", stages, s.pool);
  PerStage(keys, "widen", stages, s.widen);
  PerStage(keys, "ask", stages, s.ask);
  PerStage(keys, "sum", stages, s.sum);
  PerStage(keys, "whole", stages, s.whole);
  RowScores text{.whole_sentence = std::find(s.whole.begin(), s.whole.end(), "sentence") != s.whole.end()};
  FindSentences("coppice", context, text);
  if (!std::is_sorted(s.keep.rbegin(), s.keep.rend())) {
    throw PruneError("coppice: keep={} grows; later stages choose among what is left",
                     fmt::join(s.keep, "/"));
  }
  for (size_t i = 0; i < stages; ++i) {
    s.config.stages.push_back({s.layers[i],
                               s.keep[i],
                               s.mass[i],
                               {.queries = s.queries[i],
                                .of_question = s.ask[i] == "question",
                                .pool = s.pool[i] == "max" ? MassPool::kMaximum : MassPool::kSum,
                                .skip_sink = s.skip_sink,
                                .widen = s.widen[i],
                                .sum = s.sum[i],
                                .whole_sentence = s.whole[i] == "sentence",
                                .sentences = s.whole[i] == "sentence" ? text.sentences : nullptr}});
  }
  s.config.mask = context.shape.alibi ? ReviveMask::kCausal : ReviveMask::kAppend;
  s.config.question.assign(context.question.begin(), context.question.end());
}

// Minimum number of prompt tokens that the last stage keeps.
int64_t Stays(const CoppiceConfig& c, int64_t tokens) {
  const bool fixed = c.stages.empty() || c.stages.back().mass >= 1;
  const double keep = c.stages.empty() ? 1 : c.stages.back().keep;
  return std::max({fixed ? CeilShare(keep, tokens) : 0, c.floor, int64_t{c.sink} + c.last});
}

MethodInstance MakeCoppice(const MethodSpec& spec, const MethodContext& context) {
  CoppiceSettings s;
  Keys keys = CoppiceKeys(s, context.shape);
  keys.Read(spec);
  Finish(keys, context, s);
  MethodInstance made = MakeInstance<CoppicePolicy>(
      keys,
      {StageReason(s.layers, context.shape), LengthReason(context, std::max(s.minimum, s.config.floor + 1)),
       NothingToDrop(context, Stays(s.config, context.tokens)), WindowReason(context)},
      s.config);
  if (!s.config.revive) made.switched_off = kRevives;
  return made;
}

}  // namespace

MethodInfo CoppiceMethod() {
  return {"coppice",
          "drop tokens in stages by the question's queries and the strongest head, each token with its "
          "neighbours",
          "this engine's own; docs/methods.md",
          kDropsRows | kRevives,
          HelpOf(&CoppiceKeys),
          &MakeCoppice};
}

}  // namespace coppice
