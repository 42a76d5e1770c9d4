// Random token drop: the baseline that every choice of tokens must beat. Without layers=, before the model:
//   S = the last token and ceil(keep N) - 1 others, each such set equally likely
// LazyLLM's authors drop this way and report the mean of five runs (here: of five seeds). The tokens that
// enter the model take positions 0, 1, ..., as in a shorter prompt, or keep their own.
//
// With layers=, a control for the methods that drop hidden states: the same counts at the same layers, at
// random. A keep above 1 is a number of tokens, like SlimInfer's budgets.
//
// The choice depends only on the seed, the layer and the number of rows (random_subset.cpp).
// Source: the baseline of LazyLLM, arXiv 2407.14057, section 5.1.
#include "policies/methods/random_drop.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "policies/random_subset.h"
#include "policies/stages.h"

namespace coppice {

namespace {

int64_t Stays(double keep, int64_t rows) {
  return std::clamp<int64_t>(keep > 1 ? CeilShare(keep, 1) : CeilShare(keep, rows), 1, rows);
}

// The last row and others at random, `keep` of `rows` in all.
TokenSet Drop(double keep, int64_t rows, uint64_t seed) {
  return RandomSubset(Stays(keep, rows) - 1, rows - 1, seed).Shift(0, rows).UnionLast(1);
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

Keys RandomDropKeys(RandomDropConfig& c, const ModelShape& shape) {
  return {
      {"keep", &c.keep, kAboveZero, kManyTokens, "share of the remaining tokens to keep", "",
       "0 to 1, or tokens; one or one per layer"},
      LayersKey(c.layers, shape, "before the model, or before these layers", "input", "input, or 1 to L - 1")
          .NoValues("input"),
      {"seed", &c.seed, 0, kMaxSeed, "the same seed drops the same tokens"},
      Keys("positions", &c.compact, "original compact",
           "compact: the remaining tokens are renumbered without gaps", "compact; original with layers")
          .Check([&c] { return c.compact && !c.layers.empty() ? "is not there; it can be original" : ""; }),
      MinKey(c.minimum),
  };
}

MethodInstance MakeRandomDrop(const MethodSpec& spec, const MethodContext& context) {
  const auto layers = spec.values.find("layers");
  if (layers != spec.values.end() && layers->second == "none") {
    throw PruneError("random: layers=none drops nothing; layers=input drops before the model");
  }
  RandomDropConfig c;
  Keys keys = RandomDropKeys(c, context.shape);
  keys.Read(spec);
  FillStages(c.keep, c.layers.size(), spec.name, "keep");
  const bool input = c.layers.empty();
  if (!input) c.compact = false;
  int64_t stays = context.tokens;
  for (const double keep : c.keep) stays = Stays(keep, stays);
  MethodInstance made = MakeInstance<RandomDropPolicy>(
      keys, {LengthReason(context, c.minimum), NothingToDrop(context, stays)}, c);
  made.switched_off = input ? kDropsRows : kSelectsInput;
  if (input && made.policy) made.entering = stays;
  return made;
}

}  // namespace

MethodInfo RandomDropMethod() {
  return {"random",
          "drop tokens at random, before the model or before some layers (control)",
          "random token drop, the baseline of LazyLLM, arXiv 2407.14057",
          kSelectsInput | kDropsRows,
          HelpOf(&RandomDropKeys),
          &MakeRandomDrop};
}

}  // namespace coppice
