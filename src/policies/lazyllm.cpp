// LazyLLM: dynamic token pruning for long prompts, in prefill and in every decode step. No training.
//
// At a stage, before layer l, with the scores of layer l - 1 over the tokens A that take part in it:
//   s_i = (1/H) sum_h softmax_i(q_last,h . k_i,g(h) / sqrt(c))               (1) the last token's attention
//   A'  = the best max(1, ceil(keep_s |A n prompt|)) prompt tokens by s      (2) ties: the earlier
// In prefill q_last is the last prompt token's, which stays, inside the count. Who leaves is parked as the
// input of layer l. In decode q_last is the current token's: every step begins with all tokens, (2) chooses
// again at each stage, and a chosen token without keys comes back from where it is parked, at its own
// position, and is computed there for the first time. Generated tokens always stay, outside the count: every
// figure of the paper speaks of prompt tokens.
//
// The sum over heads stands for the mean: the order is the same. The percentile of the paper ranges over A,
// not over all tokens (its algorithm 1 scores A alone); an exact count replaces it, because a threshold would
// keep all ties. Stages and shares are not published: the layers are SlimInfer's, the share is half, as in
// SlimInfer's comparison.
//
// A parked hidden state takes d numbers, the keys and values that it stands for 2 G c (L - l). With few kv
// heads a late stage would therefore cost memory: strict_memory moves stages beyond L - ceil(d / (2 G c)) to
// there, and drops those that would then coincide.
//
// Who sees whom when tokens come back (revive_mask): they are appended, and see every attended token, as the
// text has it; or by position (causal). ALiBi's bias has no meaning for keys behind a query: causal there.
//
// Cost per stage: one query against |A| keys, 2 |A| H c flops, and one selection.
// Source: LazyLLM: dynamic token pruning for efficient long context LLM inference, arXiv 2407.14057.
#include "policies/lazyllm.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "policies/presets.h"
#include "policies/stages.h"

namespace coppice {

LazyLlmPolicy::LazyLlmPolicy(LazyLlmConfig config) : config_(std::move(config)), sum_(config_.scores.sum) {
  COPPICE_CHECK(config_.layers.size() == config_.keep.size());
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
  // Both lists ascend: walk them together, from rows of what was attended to rows of the candidates.
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
  return TokenSet::Of(std::move(chosen), count);
}

namespace {

// Stages beyond `last` move there; of stages that then coincide the first stays.
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
  config.keep = std::move(keep);
}

ReviveMask ReadMask(SpecReader& read, const ModelShape& shape) {
  const std::string text = shape.alibi ? read.Choice("revive_mask", {"causal", "append"})
                                       : read.Choice("revive_mask", {"append", "causal"});
  if (shape.alibi && text == "append") {
    throw Error("--prune lazyllm: revive_mask=append: ALiBi has no bias for keys behind a query");
  }
  return text == "append" ? ReviveMask::kAppend : ReviveMask::kCausal;
}

MethodInstance MakeLazyLlm(const MethodSpec& spec, const MethodContext& context) {
  const ModelShape& shape = context.shape;
  SpecReader read(spec);
  LazyLlmConfig config;
  const std::string preset = read.Choice("preset", {"default", "paper"});
  config.layers = ReadLayers(read, spec, StageLayers(shape), shape);
  const std::vector<double> keep = ReadKeep(read, spec, config.layers.size(), 1);
  config.keep.assign(keep.begin(), keep.begin() + static_cast<ptrdiff_t>(config.layers.size()));
  config.sink = static_cast<int>(read.Integer("sink", 0, 0, kManyTokens));
  config.revive = read.Choice("revive", {"aux", "none"}) == "aux";
  config.mask = ReadMask(read, shape);
  config.scores = ReadRowScores(read, {}, context);
  config.question.assign(context.question.begin(), context.question.end());
  const bool strict = read.Integer("strict_memory", preset == "paper" ? 0 : 1, 0, 1) == 1;
  const int64_t minimum = read.Integer("min", 2048, 0, kManyTokens);
  read.RefuseUnknownKeys();
  // Without parked states there is nothing to weigh.
  if (strict && config.revive) ClampStages(LastStageWithinMemory(shape), config);

  MethodInstance made;
  if (!config.revive) made.switched_off = kRevives;
  made.settings = fmt::format(
      "lazyllm:preset={},layers={},keep={},sink={},revive={},revive_mask={},strict_memory={},{},min={}",
      preset, LayersText(config.layers),
      fmt::join(config.keep.empty() ? std::vector{keep.front()} : config.keep, "/"), config.sink,
      config.revive ? "aux" : "none", config.mask == ReviveMask::kAppend ? "append" : "causal",
      strict ? 1 : 0, RowScoresText(config.scores), minimum);
  made.reason =
      FirstReason({StageReason(config.layers, shape), LengthReason(context, minimum), WindowReason(context)});
  if (made.reason.empty()) made.policy = std::make_unique<LazyLlmPolicy>(std::move(config));
  return made;
}

}  // namespace

MethodInfo LazyLlmMethod() {
  MethodInfo info{
      "lazyllm",
      "drop tokens at a few layers, choose again for every generated token, compute the chosen where they "
      "left",
      "LazyLLM: dynamic token pruning for efficient long context LLM inference, arXiv 2407.14057",
      kDropsRows | kRevives,
      {{"preset", "default", "default, paper", "paper: strict_memory=0"},
       {"layers", "round(L {10,20,30} / 32)", "1 to L - 1, or none", "tokens leave before these layers"},
       {"keep", "0.5", "0 to 1, one or one per layer", "share of the prompt tokens still there that stays"},
       {"sink", "0", "0 up", "positions below this always stay"},
       {"revive", "aux", "aux, none", "none: what left in prefill never returns"},
       {"revive_mask", "append; causal with ALiBi", "append, causal",
        "whether tokens that return see later ones"},
       {"strict_memory", "1", "0, 1", "move late stages so that parked states never cost memory"},
       {"min", "2048", "0 up", "shorter prompts run dense"}},
      &MakeLazyLlm};
  AddRowScoresKeys("1", "min", info.keys);
  return info;
}

}  // namespace coppice
