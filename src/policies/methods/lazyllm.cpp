// LazyLLM: dynamic token pruning for long prompts, in prefill and in every decode step. No training.
//
// At a stage, before layer l, with the scores of layer l - 1 over the tokens A that take part in it:
//   s_i = (1/H) sum_h softmax_i(q_last,h . k_i,g(h) / sqrt(c))               (1) the last token's attention
//   A'  = the best max(1, ceil(keep_s |A n prompt|)) prompt tokens by s      (2) ties: the earlier
// In prefill q_last is the last prompt token's query; that token stays and (2) counts it. Dropped tokens move
// to the Aux cache: their hidden states are stored as the input of layer l (parked). In decode q_last is the
// current token's query. Every step begins with all tokens, and (2) chooses again at each stage. A chosen
// token that has no keys yet continues from its parked hidden state, at its own position. Generated tokens
// always stay, and (2) does not count them: all figures of the paper count prompt tokens.
//
// The code adds over heads instead of averaging: the order is the same. The paper's percentile ranges over A,
// not over all tokens (its algorithm 1 scores A only). An exact count replaces it, because a threshold would
// keep all ties. Stages and shares are not published: the layers are SlimInfer's, and the share is half, as
// in SlimInfer's comparison.
//
// A parked hidden state takes d numbers; the keys and values it replaces take 2 G c (L - l). With few kv
// heads a late stage would therefore cost memory: strict_memory moves stages beyond L - ceil(d / (2 G c)) to
// that layer, and removes stages that would then coincide. It counts bytes: beside keys and values in Q8_0 a
// parked state, which is bf16, takes nearly twice as many layers.
//
// revive_mask says which keys a returning token sees. append: every attended token, as in the paper's text.
// causal: only earlier positions. ALiBi has no bias for keys behind a query, so it needs causal.
//
// revive_cap bounds the tokens that come back at a stage in one step to the best by s; the others stay
// parked, and later steps can choose them. With revive_every = n, tokens come back in every n-th step only,
// from the first one on; between them, parked tokens stay parked whatever their score. The paper has neither.
// A token that comes back costs as much as in prefill, and a step in which any does reads the weights twice.
//
// Cost per stage: one query against |A| keys, 2 |A| H c FLOPs, and one selection.
// Source: LazyLLM: dynamic token pruning for efficient long context LLM inference, arXiv 2407.14057.
#include "policies/methods/lazyllm.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "policies/presets.h"
#include "policies/stages.h"

namespace coppice {

LazyLlmPolicy::LazyLlmPolicy(LazyLlmConfig config) : config_(std::move(config)), sum_(config_.scores.sum) {
  COPPICE_CHECK(config_.keep.size() >= config_.layers.size());
}

int LazyLlmPolicy::StageBefore(int layer) const {
  const int stage = StageOf(config_.layers, layer);
  return stage >= 0 && config_.keep[static_cast<size_t>(stage)] < 1 ? stage : -1;
}

int64_t LazyLlmPolicy::Count(int stage, int64_t prompt_rows) const {
  return CeilShare(config_.keep[static_cast<size_t>(stage)], prompt_rows);  // at least 1: keep is above 0
}

LayerPoint LazyLlmPolicy::FirstChoice() const {
  for (const int layer : config_.layers) {
    if (StageBefore(layer) >= 0) return {layer, false};
  }
  return kNoPoint;
}

Needs LazyLlmPolicy::NeedsAt(Phase phase, int layer) const {
  if (!Scores(phase, layer) || (phase == Phase::kDecode && !config_.revive)) return {};
  return {.masses = {config_.scores.Need(phase, config_.question)}, .unit_scores = {}};  // (1)
}

bool LazyLlmPolicy::Scores(Phase phase, int layer) const {
  return std::any_of(config_.layers.begin(), config_.layers.end(), [&](int stage) {
    return StageBefore(stage) >= 0 && config_.scores.Counts(phase, layer, stage - 1);
  });
}

std::span<const float> LazyLlmPolicy::Mass(const Observation& seen) const {
  return seen.AttentionMass(config_.scores.Need(seen.phase, config_.question)).Row<float>(0);
}

TokenSet LazyLlmPolicy::BeforeLayer(const Observation& seen, Backend& be) {
  if (!Scores(seen.phase, seen.layer - 1)) return TokenSet::All(seen.rows());
  const std::vector<float> sum = sum_.Add(seen.layer, Mass(seen), seen.positions);
  const int stage = StageBefore(seen.layer);
  if (stage < 0) return TokenSet::All(seen.rows());
  return BestRows(config_.scores.Spread(sum, seen.positions), Count(stage, seen.rows()),  // (2)
                  RowsBelow(seen.positions, config_.sink), 1, be);
}

DecodePoint LazyLlmPolicy::AttendsAt(int layer) const {
  return config_.revive && StageBefore(layer) >= 0 ? DecodePoint::kBeforeLayer : DecodePoint::kNone;
}

TokenSet LazyLlmPolicy::Attend(const Observation& seen, const Candidates& candidates, Backend& be) {
  const std::span<const int32_t> positions = candidates.positions;
  const auto count = static_cast<int64_t>(positions.size());
  const int stage = StageBefore(seen.layer);
  if (stage < 0) return TokenSet::All(count);
  const int64_t prompt_rows = RowsBelow(seen.positions, seen.prompt_tokens);
  const std::vector<float> scores = config_.scores.Spread(Mass(seen), seen.positions);
  const std::vector<int32_t> best =
      BestRows(std::span(scores).first(static_cast<size_t>(prompt_rows)), Count(stage, prompt_rows),
               RowsBelow(seen.positions, config_.sink), 0, be)  // (2)
          .ToRows();
  // Both lists ascend: walk them together, to map rows of the attended tokens to rows of the candidates.
  std::vector<int32_t> chosen;
  chosen.reserve(positions.size());
  size_t next = 0;
  for (int64_t row = 0; row < count; ++row) {
    const int32_t position = positions[static_cast<size_t>(row)];
    const auto at = [&] { return seen.positions[static_cast<size_t>(best[next])]; };
    while (next < best.size() && at() < position) ++next;
    if (position >= seen.prompt_tokens || (next < best.size() && at() == position)) {
      chosen.push_back(static_cast<int32_t>(row));
    }
  }
  const TokenSet all = TokenSet::Of(std::move(chosen), count);
  const bool rests = (positions.back() - seen.prompt_tokens) % config_.revive_every != 0;
  if (!rests && config_.revive_cap == 0) return all;
  return WithinCap(all, candidates, seen, scores, rests ? 0 : config_.revive_cap, be);
}

TokenSet LazyLlmPolicy::WithinCap(const TokenSet& chosen, const Candidates& candidates,
                                  const Observation& seen, std::span<const float> scores, int64_t cap,
                                  Backend& be) {
  std::vector<float> rank(candidates.positions.size(), -std::numeric_limits<float>::infinity());
  int64_t back = 0;
  for (size_t i = 0, row = 0; i < rank.size(); ++i) {
    if (candidates.parked[i] == 0 || !chosen.Contains(static_cast<int64_t>(i))) continue;
    while (seen.positions[row] < candidates.positions[i]) ++row;  // it is there: it was chosen by its score
    rank[i] = scores[row];
    ++back;
  }
  if (back <= cap) return chosen;
  const TokenSet best = cap == 0 ? TokenSet::None(chosen.universe())
                                 : be.TopK(TensorView(rank.data(), DType::kF32, 1, chosen.universe()), cap);
  std::vector<int32_t> kept;
  for (const int32_t i : chosen.ToRows()) {
    if (candidates.parked[static_cast<size_t>(i)] == 0 || best.Contains(i)) kept.push_back(i);
  }
  return TokenSet::Of(std::move(kept), chosen.universe());
}

namespace {

// Moves stages beyond `last` to `last`. Of stages that then coincide only the first stays.
void ClampStages(int last, LazyLlmConfig& config) {
  std::vector<int> layers;
  std::vector<double> keep;
  for (size_t s = 0; s < config.layers.size(); ++s) {
    const int layer = std::min(config.layers[s], last);
    if (layer < 1 || (!layers.empty() && layer <= layers.back())) continue;
    layers.push_back(layer);
    keep.push_back(config.keep[s]);
  }
  config.layers = std::move(layers);
  config.keep = keep.empty() ? std::vector{config.keep.front()} : std::move(keep);
}

// Prompt tokens that the last stage keeps.
int64_t Stays(const LazyLlmConfig& c, int64_t tokens) {
  for (size_t s = 0; s < c.layers.size(); ++s) {
    tokens = std::min(tokens, std::max<int64_t>(CeilShare(c.keep[s], tokens), c.sink));
  }
  return tokens;
}

Keys LazyLlmKeys(LazyLlmConfig& c, const ModelShape& shape) {
  c.layers = StageLayers(shape);
  c.mask = shape.alibi ? ReviveMask::kCausal : ReviveMask::kAppend;
  const auto check_mask = [&c, alibi = shape.alibi] {
    return alibi && c.mask == ReviveMask::kAppend ? ": ALiBi has no bias for keys behind a query" : "";
  };
  return {
      {"preset", &c.paper, "default paper", "paper: strict_memory=0"},
      LayersKey(c.layers, shape, "tokens are dropped before these layers", "round(L {10,20,30} / 32)")
          .NoValues("none"),
      {"keep", &c.keep, kAboveZero, 1, "share of the remaining prompt tokens to keep"},
      {"sink", &c.sink, 0, kManyTokens, "positions below this are always kept"},
      {"revive", &c.revive, "none aux", "aux: dropped tokens can come back while generating; none: never"},
      Keys("revive_mask", &c.mask, "append causal", "whether tokens that come back attend to later positions",
           "append; causal with ALiBi")
          .Check(check_mask),
      {"revive_cap", &c.revive_cap, 0, kManyTokens,
       "most tokens that come back per stage and generated token, 0: all that are chosen"},
      {"revive_every", &c.revive_every, 1, kManyTokens,
       "tokens come back at every n-th generated token only, from the first on"},
      {"strict_memory", &c.strict_memory, 0, 1,
       "move late stages so that KV and Aux together never exceed dense KV", "", "0, 1"},
      RowScoresKeys(c.scores, shape),
      MinKey(c.minimum),
  };
}

MethodInstance MakeLazyLlm(const MethodSpec& spec, const MethodContext& context) {
  const ModelShape& shape = context.shape;
  LazyLlmConfig c;
  Keys keys = LazyLlmKeys(c, shape);
  keys.Read(spec);
  FillStages(c.keep, c.layers.size(), spec.name, "keep");
  if (!keys.Given("strict_memory")) c.strict_memory = c.paper ? 0 : 1;
  // Without revive nothing is parked.
  if (c.strict_memory == 1 && c.revive) {
    ClampStages(LastStageWithinMemory(shape, context.parked_bytes, context.layer_bytes), c);
  }
  FindSentences(spec.name, context, c.scores);
  c.question.assign(context.question.begin(), context.question.end());
  MethodInstance made =
      MakeInstance<LazyLlmPolicy>(keys,
                                  {StageReason(c.layers, shape), LengthReason(context, c.minimum),
                                   NothingToDrop(context, Stays(c, context.tokens)), WindowReason(context)},
                                  c);
  if (!c.revive) made.switched_off = kRevives;
  return made;
}

}  // namespace

MethodInfo LazyLlmMethod() {
  return {
      "lazyllm",
      "drop tokens at a few layers, and choose again for every generated token; tokens that come back are "
      "computed from the layer where they were dropped",
      "LazyLLM: dynamic token pruning for efficient long context LLM inference, arXiv 2407.14057",
      kDropsRows | kRevives,
      HelpOf(&LazyLlmKeys),
      &MakeLazyLlm};
}

}  // namespace coppice
