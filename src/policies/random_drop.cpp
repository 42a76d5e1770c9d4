// Random token drop: the baseline that every choice must beat. Without layers=, before the model:
//   S = the last token and ceil(keep N) - 1 others, each such set equally likely
// LazyLLM's authors drop this way and report the mean of five runs (here: of five seeds). The tokens that
// enter take the positions 0, 1, ..., as a shorter prompt would, or keep their own.
//
// With layers=, a control for the methods that drop hidden states: at the same layers the same counts, by
// lot. A keep above 1 is a count of tokens, to stand beside SlimInfer's budgets.
//
// Reproducible: the choice depends on the seed, the layer and the number of rows alone (random_subset.cpp).
// Source: the baseline of LazyLLM, arXiv 2407.14057, section 5.1.
#include "policies/random_drop.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "policies/random_subset.h"
#include "policies/stages.h"

namespace coppice {

namespace {

// The last row and others by lot, `keep` of `rows` in all.
TokenSet Drop(double keep, int64_t rows, uint64_t seed) {
  const int64_t wanted = keep > 1 ? CeilShare(keep, 1) : CeilShare(keep, rows);
  const int64_t count = std::clamp<int64_t>(wanted, 1, rows);
  return RandomSubset(count - 1, rows - 1, seed).Shift(0, rows).UnionLast(1);
}

}  // namespace

RandomDropPolicy::RandomDropPolicy(RandomDropConfig config) : config_(std::move(config)) {
  COPPICE_CHECK(!config_.keep.empty() && config_.keep.size() >= config_.layers.size());
}

TokenSet RandomDropPolicy::Input(int64_t tokens, Backend& /*be*/) {
  return config_.layers.empty() ? Drop(config_.keep.front(), tokens, config_.seed) : TokenSet::All(tokens);
}

LayerPoint RandomDropPolicy::FirstChoice() const {
  return {config_.layers.empty() ? 0 : config_.layers.front(), false};
}

TokenSet RandomDropPolicy::BeforeLayer(const Observation& seen, Backend& /*be*/) {
  const int stage = StageOf(config_.layers, seen.layer);
  if (stage < 0) return TokenSet::All(seen.rows());
  return Drop(config_.keep[static_cast<size_t>(stage)], seen.rows(), SeedOfLayer(config_.seed, seen.layer));
}

namespace {

MethodInstance MakeRandomDrop(const MethodSpec& spec, const MethodContext& context) {
  SpecReader read(spec);
  RandomDropConfig config;
  const auto layers = spec.values.find("layers");
  const bool input = layers == spec.values.end() || layers->second == "input";
  if (input) {
    read.Choice("layers", {"input"});
  } else {
    config.layers = ReadLayers(read, spec, {}, context.shape);
    if (config.layers.empty())
      throw Error("--prune random: layers=none drops nothing; layers=input drops before the model");
  }
  config.keep = ReadKeep(read, spec, config.layers.size(), static_cast<double>(kManyTokens));
  config.seed = static_cast<uint64_t>(read.Integer("seed", 0, 0, kMaxSeed));
  const std::string positions =
      input ? read.Choice("positions", {"compact", "original"}) : read.Choice("positions", {"original"});
  config.compact = positions == "compact";
  const int64_t minimum = read.Integer("min", 1024, 0, kManyTokens);
  read.RefuseUnknownKeys();

  MethodInstance made;
  made.switched_off = input ? kDropsRows : kSelectsInput;
  made.settings =
      fmt::format("random:keep={},layers={},seed={},positions={},min={}", fmt::join(config.keep, "/"),
                  input ? "input" : LayersText(config.layers), config.seed, positions, minimum);
  made.reason = LengthReason(context, minimum);
  if (made.reason.empty()) made.policy = std::make_unique<RandomDropPolicy>(std::move(config));
  return made;
}

}  // namespace

MethodInfo RandomDropMethod() {
  return {
      "random",
      "drop tokens by lot, before the model or before some layers: a control",
      "random token drop, the baseline of LazyLLM, arXiv 2407.14057",
      kSelectsInput | kDropsRows,
      {{"keep", "0.5", "0 to 1, or tokens; one or one per layer", "share of what is still there that stays"},
       {"layers", "input", "input, or 1 to L - 1", "before the model, or before these layers"},
       {"seed", "0", "0 up", "the same seed drops the same tokens"},
       {"positions", "compact; original with layers", "compact, original",
        "whether what enters the model closes ranks"},
       {"min", "1024", "0 up", "shorter prompts run dense"}},
      &MakeRandomDrop};
}

}  // namespace coppice
