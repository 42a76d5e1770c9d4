// coppice: the engine's own method. Token pruning for long prompts in a few stages, early ones by many queries and the
// strongest head, late ones by the last query. No training.
//
// At stage s, before layer l_s, with the attention of layer l_s - 1 over the tokens A that are left:
//   s_i  = pool over heads and the queries of stage s of softmax(q . k_i / sqrt(c))          (1) sinks take no part
//   w_i  = max of s over the tokens within widen_s positions of i                           (2)
// Where a stage says so, (1) is summed over its last layers, and (2) spreads over sentences (row_scores.h).
//   A'   = sinks, the question's end, the prompt's end, and the best by w; keep_s N in all   (3) ties: the earlier
// Why each part (SmolLM2, docs/quality.md): a fact's next digit is not what the prompt's end looks at, so a chosen token
// needs its neighbours (2). In the first third of the layers no single query knows yet what it wants: 16 of them do, each
// by one head, so (1) is a maximum there. From half depth on the last query knows, and its mean over heads is enough.
// The sinks would else hold most of each head's mass. Dropping hurts less than skipping FFNs: a row that missed an FFN
// poisons the keys that stay.
//
// While generating, what was kept is attended always. At stage s the current token's attention in layer l_s - 1 also
// falls on tokens that are parked there. Where they hold more than revive_mass of it, the best of them by (2) come back,
// at most revive_cap:
//   m    = sum of s over parked tokens / sum of s                                            (4)
//   back = the best by w among parked tokens, if m > revive_mass                             (5)
//
// Bound over N prompt tokens, L layers: a layer between stages s and s + 1 costs what it costs for keep_s N tokens.
// Cost per stage: queries x |A| keys, 2 queries |A| H c flops, and one selection.
#include "policies/coppice.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "policies/presets.h"
#include "policies/stages.h"

namespace coppice {

CoppicePolicy::CoppicePolicy(CoppiceConfig config) : config_(std::move(config)) {
  for (const CoppiceStage& stage : config_.stages) sums_.emplace_back(stage.scores.sum);
}

const CoppiceStage* CoppicePolicy::StageBefore(int layer) const {
  for (const CoppiceStage& stage : config_.stages) {
    if (stage.layer == layer && stage.keep < 1) return &stage;
  }
  return nullptr;
}

LayerPoint CoppicePolicy::FirstChoice() const {
  for (const CoppiceStage& stage : config_.stages) {
    if (stage.keep < 1) return {stage.layer, false};
  }
  return kNoPoint;
}

Needs CoppicePolicy::NeedsAt(Phase phase, int layer) const {
  Needs needs;
  if (phase == Phase::kDecode && !config_.revive) return needs;
  for (const CoppiceStage& stage : config_.stages) {
    if (stage.keep >= 1 || !stage.scores.Counts(phase, layer, stage.layer - 1)) continue;
    needs.Merge({.masses = {stage.scores.Need(phase, config_.question)}, .unit_scores = {}});  // (1)
  }
  return needs;
}

bool CoppicePolicy::AlwaysStays(int64_t position, int64_t prompt_tokens) const {
  if (position < config_.sink || position >= prompt_tokens - config_.last) return true;
  int64_t left = config_.last;  // of the question, from its end
  for (auto span = config_.question.rbegin(); span != config_.question.rend() && left > 0; ++span) {
    if (position < span->end && position >= std::max(span->begin, span->end - left)) return true;
    left -= span->end - span->begin;
  }
  return false;
}

TokenSet CoppicePolicy::BeforeLayer(const Observation& seen, Backend& be) {
  std::vector<float> s;  // of the stage before this layer
  for (size_t i = 0; i < config_.stages.size(); ++i) {
    const CoppiceStage& of = config_.stages[i];
    if (of.keep >= 1 || !of.scores.Counts(Phase::kPrefill, seen.layer - 1, of.layer - 1)) continue;
    const Needs::Mass mass = of.scores.Need(Phase::kPrefill, config_.question);
    std::vector<float> sum = sums_[i].Add(seen.layer, seen.AttentionMass(mass).Row<float>(0), seen.positions);
    if (of.layer == seen.layer) s = std::move(sum);
  }
  const CoppiceStage* stage = StageBefore(seen.layer);
  if (stage == nullptr) return TokenSet::All(seen.rows());
  std::vector<float> w = stage->scores.Spread(s, seen.positions);  // (2)
  int64_t always = 0;
  for (size_t row = 0; row < w.size(); ++row) {
    w[row] = std::min(w[row], std::numeric_limits<float>::max());  // infinity is the rank of those that stay
    if (!AlwaysStays(seen.positions[row], seen.prompt_tokens)) continue;
    w[row] = std::numeric_limits<float>::infinity();
    ++always;
  }
  const int64_t count = std::max({CeilShare(stage->keep, seen.prompt_tokens), always, int64_t{1}});
  return be.TopK(TensorView(w.data(), DType::kF32, 1, seen.rows()), count).UnionLast(1);  // (3)
}

DecodePoint CoppicePolicy::AttendsAt(int layer) const {
  return config_.revive && StageBefore(layer) != nullptr ? DecodePoint::kBeforeLayer : DecodePoint::kNone;
}

TokenSet CoppicePolicy::Attend(const Observation& seen, const Candidates& candidates, Backend& be) {
  const CoppiceStage& stage = *StageBefore(seen.layer);
  const auto count = static_cast<int64_t>(candidates.positions.size());
  const std::span<const float> s = seen.AttentionMass(stage.scores.Need(Phase::kDecode, {})).Row<float>(0);
  const std::vector<float> w = stage.scores.Spread(s, seen.positions);
  // Candidates are among what was attended: walk both lists, which ascend.
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
  const bool revives = parked > config_.revive_mass * all;  // (4); a NaN revives nothing
  const int64_t back = revives ? std::min<int64_t>(config_.revive_cap, parked_count) : 0;
  TokenSet best = be.TopK(TensorView(rank.data(), DType::kF32, 1, count), back);  // (5)
  for (int64_t i = 0; i < count; ++i) {
    if (candidates.parked[static_cast<size_t>(i)] == 0 || best.Contains(i))
      chosen.push_back(static_cast<int32_t>(i));
  }
  return TokenSet::Of(std::move(chosen), count);
}

namespace {

// One value for each stage; one stands for all.
template <typename T>
std::vector<T> ForStages(std::vector<T> values, size_t stages, const char* key) {
  if (values.size() == 1) values.resize(std::max<size_t>(stages, 1), values.front());
  if (values.size() != stages && stages > 0) {
    throw Error("--prune coppice: {} has {} values for {} layers", key, values.size(), stages);
  }
  return values;
}

// The defaults for so many stages: of three, the first by many queries, the others by the last one.
template <typename T>
std::vector<T> Defaults(size_t stages, std::vector<T> of_three) {
  if (stages >= of_three.size()) {
    of_three.resize(stages, of_three.back());
    return of_three;
  }
  return {of_three.end() - static_cast<std::ptrdiff_t>(std::max<size_t>(stages, 1)), of_three.end()};
}

std::vector<CoppiceStage> ReadStages(SpecReader& read, const MethodSpec& spec, const MethodContext& context) {
  const ModelShape& shape = context.shape;
  const std::vector<int> layers = ReadLayers(read, spec, CoppiceLayers(shape), shape);
  const size_t n = layers.size();
  const std::vector<double> keep =
      ForStages(read.Numbers("keep", Defaults<double>(n, {0.25, 0.1, 0.05}), 1e-6, 1), n, "keep");
  const std::vector<int> queries =
      ForStages(read.Integers("queries", Defaults<int>(n, {16, 16, 1}), 1, 4096), n, "queries");
  const std::vector<std::string> pool = ForStages(
      read.Choices("pool", Defaults<std::string>(n, {"max", "max", "mean"}), {"max", "mean"}), n, "pool");
  const std::vector<int> widen =
      ForStages(read.Integers("widen", Defaults<int>(n, {16, 16, 8}), 0, 4096), n, "widen");
  const std::vector<std::string> ask = ForStages(
      read.Choices("ask", Defaults<std::string>(n, {"question", "question", "end"}), {"question", "end"}), n,
      "ask");
  const auto skip_sink = static_cast<int32_t>(read.Integer("skip_sink", 4, 0, 4096));
  const std::vector<int> sum =
      ForStages(read.Integers("sum", Defaults<int>(n, {1}), 1, std::max(shape.layers, 1)), n, "sum");
  const std::vector<std::string> whole =
      ForStages(read.Choices("whole", Defaults<std::string>(n, {"none"}), {"none", "sentence"}), n, "whole");
  const bool any_whole = std::find(whole.begin(), whole.end(), "sentence") != whole.end();
  const auto sentences = any_whole ? Sentences(spec.name, context) : nullptr;
  std::vector<CoppiceStage> stages;
  for (size_t s = 0; s < n; ++s) {
    if (s > 0 && keep[s] > keep[s - 1])
      throw Error("--prune coppice: keep={} grows; later stages choose among what is left",
                  fmt::join(keep, "/"));
    stages.push_back({layers[s],
                      keep[s],
                      {.queries = queries[s],
                       .of_question = ask[s] == "question",
                       .pool = pool[s] == "max" ? MassPool::kMaximum : MassPool::kSum,
                       .skip_sink = skip_sink,
                       .widen = widen[s],
                       .sum = sum[s],
                       .whole_sentence = whole[s] == "sentence",
                       .sentences = whole[s] == "sentence" ? sentences : nullptr}});
  }
  return stages;
}

std::string StagesText(const std::vector<CoppiceStage>& stages) {
  std::vector<std::string> layers, keep, queries, pool, widen, ask, sum, whole;
  for (const CoppiceStage& s : stages) {
    layers.push_back(std::to_string(s.layer));
    keep.push_back(fmt::format("{}", s.keep));
    queries.push_back(std::to_string(s.scores.queries));
    pool.emplace_back(s.scores.pool == MassPool::kMaximum ? "max" : "mean");
    widen.push_back(std::to_string(s.scores.widen));
    ask.emplace_back(s.scores.of_question ? "question" : "end");
    sum.push_back(std::to_string(s.scores.sum));
    whole.emplace_back(s.scores.whole_sentence ? "sentence" : "none");
  }
  if (stages.empty()) return "coppice:layers=none";
  return fmt::format(
      "coppice:layers={},keep={},queries={},pool={},widen={},ask={},skip_sink={},sum={},whole={}",
      fmt::join(layers, "/"), fmt::join(keep, "/"), fmt::join(queries, "/"), fmt::join(pool, "/"),
      fmt::join(widen, "/"), fmt::join(ask, "/"), stages.front().scores.skip_sink, fmt::join(sum, "/"),
      fmt::join(whole, "/"));
}

MethodInstance MakeCoppice(const MethodSpec& spec, const MethodContext& context) {
  const ModelShape& shape = context.shape;
  SpecReader read(spec);
  CoppiceConfig config;
  config.stages = ReadStages(read, spec, context);
  config.sink = static_cast<int>(read.Integer("sink", config.sink, 0, kManyTokens));
  config.last = static_cast<int>(read.Integer("last", config.last, 1, kManyTokens));
  config.revive = read.Choice("revive", {"aux", "none"}) == "aux";
  config.revive_mass = read.Number("revive_mass", config.revive_mass, 0, 1);
  config.revive_cap = static_cast<int>(read.Integer("revive_cap", config.revive_cap, 0, kManyTokens));
  config.mask = shape.alibi ? ReviveMask::kCausal : ReviveMask::kAppend;
  const int64_t minimum = read.Integer("min", 1024, 0, kManyTokens);
  read.RefuseUnknownKeys();
  config.question.assign(context.question.begin(), context.question.end());

  MethodInstance made;
  if (!config.revive) made.switched_off = kRevives;
  made.settings = fmt::format("{},sink={},last={},revive={},revive_mass={},revive_cap={},min={}",
                              StagesText(config.stages), config.sink, config.last,
                              config.revive ? "aux" : "none", config.revive_mass, config.revive_cap, minimum);
  std::vector<int> layers;
  for (const CoppiceStage& stage : config.stages) layers.push_back(stage.layer);
  made.reason =
      FirstReason({StageReason(layers, shape), LengthReason(context, minimum), WindowReason(context)});
  if (made.reason.empty()) made.policy = std::make_unique<CoppicePolicy>(std::move(config));
  return made;
}

}  // namespace

MethodInfo CoppiceMethod() {
  return {
      "coppice",
      "drop tokens in stages, early by many queries and the strongest head, late by the last query, each "
      "with "
      "its neighbours",
      "this engine's own; docs/methods.md",
      kDropsRows | kRevives,
      {{"layers", "round(L {0.27,0.5,0.8})", "1 to L - 1, or none", "tokens leave before these layers"},
       {"keep", "0.25/0.1/0.05", "0 to 1, one or one per layer", "share of the prompt that stays"},
       {"queries", "16/16/1", "1 to 4096, one or one per layer", "how many queries score"},
       {"pool", "max/max/mean", "max, mean, one or one per layer", "over heads and queries"},
       {"widen", "16/16/8", "0 to 4096, one or one per layer",
        "neighbours on both sides that a token takes along"},
       {"ask", "question/question/end", "question, end, one or one per layer",
        "whose queries: the question's last, or the prompt's"},
       {"skip_sink", "4", "0 to 4096", "keys at positions below this score nothing and take no mass"},
       {"sum", "1", "1 to L, one or one per layer",
        "layers before the choice whose scores add up; in decode the last alone"},
       {"whole", "none", "none, sentence, one or one per layer",
        "sentence: a token has the best score of its sentence"},
       {"sink", "4", "0 up", "positions below this always stay"},
       {"last", "64", "1 up", "so many of the prompt's last tokens stay, and of the question's"},
       {"revive", "aux", "aux, none", "none: what left in prefill never returns"},
       {"revive_mass", "0.3", "0 to 1", "tokens return where they hold more than this of a step's attention"},
       {"revive_cap", "32", "0 up", "so many at most, per stage and generated token"},
       {"min", "1024", "0 up", "shorter prompts run dense"}},
      &MakeCoppice};
}

}  // namespace coppice
