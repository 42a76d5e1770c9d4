// SlimInfer: dynamic pruning of hidden states by blocks, for long prompts. No training.
//
// The stream is split into blocks of B rows, each into units of u rows. After the attention of a deciding
// layer
//   q̄^h   = mean of the last w queries                                   (1)
//   r(j)  = max over units m of block j of (1/H) sum_h q̄^h . k̄^g(h)(j,m)  (2) raw dots, k̄ the unit's mean key
//   keep  = block 0, the tail, and the best by r, k_s tokens in all       (3) ties: the earlier block
// The rows of the other blocks are dropped before this layer's FFN: they have no keys in later layers.
//
// The paper does not mention the tail, but its queries choose and its last row gives the logits. The tail is
// the blocks that hold the last `last` tokens: the last block, and the one before it if the last is partial.
// With the last block alone, prompts that ended 1 to 6 tokens into it lost their question, and later stages
// took their window's queries from whatever blocks were left.
//
// Deciding layer: p_s - 1, so that layers >= p_s hold exactly k_s rows. This reading reproduces the paper's
// memory table (32k tokens, Llama-3.1-8B, fp16: 10 * 32768 + 10 * 8192 + 10 * 4096 + 2 * 2048 rows = 1.73 GiB
// of 4.00) and its FLOP ratio (bound 2.62, measured 2.53). Deciding at p_s does not.
//
// Later stages choose among the rows that are left. Because whole blocks were dropped, these again form whole
// blocks of the prompt. Rows that another method or Protection keeps come on top of k_s and shift the
// borders.
//
// In decode every deciding layer scores all blocks that have keys in it, in memory or in the cold tier, with
// the last w queries of prompt and answer:
//   cand    = block 0, the tail, and the best by r                         (3)
//   active  = cand if |cand and active| / |cand| < gamma, else unchanged  (4) Algorithm 1
// Layers (p_s - 1, p_{s+1} - 1] attend the active blocks and all generated tokens. Keys of other blocks move
// to the cold tier. A block dropped in prefill has no keys in those layers; the paper does not say what
// happens to it. Since SlimInfer builds on LazyLLM, revive=aux parks the hidden states of dropped blocks in
// the Aux cache. At most revive_cap blocks per step, the best first, return from there: they run the FFN that
// they missed and the layers of the segment. The cap does not change cand, and so not the overlap: where (4)
// exchanges, the best blocks that have keys take the places of those beyond the cap. With revive=none only
// blocks with keys are candidates.
#include "policies/methods/sliminfer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "policies/presets.h"
#include "policies/stages.h"

namespace coppice {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

SlimInferBlocks::SlimInferBlocks(int block, int64_t prompt_tokens, int64_t tail_begin)
    : count((prompt_tokens + block - 1) / block),
      tail(tail_begin / block),
      block_(block),
      tokens_(prompt_tokens) {}

int64_t SlimInferBlocks::Within(int64_t budget) const {
  return budget >= tokens_ ? count : std::max(budget / block_, Always());
}

SlimInferPolicy::SlimInferPolicy(SlimInferConfig config)
    : config_(std::move(config)), sum_(config_.scores.sum) {
  if (config_.decode_keep.empty()) config_.decode_keep = config_.keep;
  COPPICE_CHECK(config_.layers.size() == config_.keep.size() && config_.block % config_.unit == 0);
  COPPICE_CHECK(config_.layers.size() == config_.decode_keep.size());
  // Otherwise every step would choose the blocks that are already active.
  decides_in_decode_ = config_.revive || config_.decode_keep != config_.keep;
  active_.resize(config_.layers.size());
}

int SlimInferPolicy::StageAfter(int layer) const {
  const auto it = std::find(config_.layers.begin(), config_.layers.end(), layer + 1);
  return it == config_.layers.end() ? -1 : static_cast<int>(it - config_.layers.begin());
}

LayerPoint SlimInferPolicy::FirstChoice() const {
  return config_.layers.empty() ? kNoPoint : LayerPoint{config_.layers.front() - 1, true};
}

Needs SlimInferPolicy::NeedsAt(Phase phase, int layer) const {
  if (by_mass() && phase == Phase::kPrefill) {
    if (!ScoresMass(layer)) return {};
    return {.masses = {config_.scores.Need(phase, config_.question)}, .unit_scores = {}};
  }
  if (StageAfter(layer) < 0 || (phase == Phase::kDecode && !decides_in_decode_)) return {};
  return {.masses = {}, .unit_scores = {Units()}};
}

std::vector<float> SlimInferPolicy::BlockScores(const TensorView& unit_scores) const {
  const std::span<const float> score = unit_scores.Row<float>(0);  // (1), Backend::UnitScores
  const auto per_block = static_cast<size_t>(config_.block / config_.unit);
  std::vector<float> r((score.size() + per_block - 1) / per_block, -kInfinity);
  for (size_t m = 0; m < score.size(); ++m) {
    float& best = r[m / per_block];
    best = std::max(best, std::min(score[m], std::numeric_limits<float>::max()));  // (2); a NaN never wins
  }
  return r;
}

bool SlimInferPolicy::ScoresMass(int layer) const {
  return by_mass() && std::any_of(config_.layers.begin(), config_.layers.end(), [&](int stage) {
           return config_.scores.Counts(Phase::kPrefill, layer, stage - 1);
         });
}

// Not in the paper: raw products are large where keys are large. Softmax mass shows what each head attends
// to.
std::vector<float> SlimInferPolicy::BlockMass(std::span<const float> mass,
                                              std::span<const int32_t> positions) const {
  const std::vector<float> score = config_.scores.Spread(mass, positions);
  const auto block = static_cast<size_t>(config_.block);
  std::vector<float> r((score.size() + block - 1) / block, -kInfinity);
  for (size_t row = 0; row < score.size(); ++row) {
    r[row / block] = std::max(r[row / block], std::min(score[row], std::numeric_limits<float>::max()));
  }
  return r;
}

TokenSet SlimInferPolicy::AfterAttention(const Observation& seen, Backend& be) {
  const int64_t rows = seen.rows();
  std::vector<float> mass;
  if (ScoresMass(seen.layer)) {
    const Needs::Mass need = config_.scores.Need(seen.phase, config_.question);
    mass = sum_.Add(seen.layer, seen.AttentionMass(need).Row<float>(0), seen.positions);
  }
  const int stage = StageAfter(seen.layer);
  if (stage < 0) return TokenSet::All(rows);
  const int64_t budget = config_.keep[static_cast<size_t>(stage)];
  if (budget >= rows) return TokenSet::All(rows);

  std::vector<float> r = by_mass() ? BlockMass(mass, seen.positions) : BlockScores(seen.UnitScores(Units()));
  const SlimInferBlocks blocks = BlocksOf(seen);
  // Blocks are of rows. If another method dropped or kept rows, they differ from blocks of positions.
  const auto tail_row = std::lower_bound(seen.positions.begin(), seen.positions.end(),
                                         static_cast<int32_t>(blocks.tail * config_.block)) -
                        seen.positions.begin();
  r.front() = kInfinity;
  std::fill(r.begin() + tail_row / config_.block, r.end(), kInfinity);
  const auto count = static_cast<int64_t>(r.size());
  const int64_t always = std::count(r.begin(), r.end(), kInfinity);
  const int64_t kept_blocks = std::max(budget / config_.block, always);
  const TokenSet best = be.TopK(TensorView(r.data(), DType::kF32, 1, count), kept_blocks);  // (3)

  std::vector<int32_t> kept;
  kept.reserve(static_cast<size_t>(kept_blocks * config_.block));
  for (const int32_t j : best.ToRows()) {
    const int64_t end = std::min<int64_t>((j + 1) * config_.block, rows);
    for (int64_t row = j * config_.block; row < end; ++row) kept.push_back(static_cast<int32_t>(row));
  }
  return TokenSet::Of(std::move(kept), rows);
}

DecodePoint SlimInferPolicy::AttendsAt(int layer) const {
  return decides_in_decode_ && StageAfter(layer) >= 0 ? DecodePoint::kAfterAttention : DecodePoint::kNone;
}

SlimInferPolicy::Blocks SlimInferPolicy::BestBlocks(const std::vector<float>& r,
                                                    const std::vector<bool>& parked, int64_t count,
                                                    int64_t parked_room) {
  Blocks order;
  for (size_t j = 0; j < r.size(); ++j) {
    if (r[j] > -kInfinity) order.push_back(static_cast<int32_t>(j));
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return r[static_cast<size_t>(a)] > r[static_cast<size_t>(b)];
  });
  Blocks best;
  for (const int32_t j : order) {
    if (static_cast<int64_t>(best.size()) == count) break;
    if (parked[static_cast<size_t>(j)] && r[static_cast<size_t>(j)] < kInfinity && parked_room-- <= 0)
      continue;
    best.push_back(j);
  }
  std::sort(best.begin(), best.end());
  return best;
}

TokenSet SlimInferPolicy::Attend(const Observation& seen, const Candidates& candidates, Backend& /*be*/) {
  const auto stage = static_cast<size_t>(StageAfter(seen.layer));
  const std::vector<float> scored = BlockScores(seen.UnitScores(Units()));
  const SlimInferBlocks all = BlocksOf(seen);
  const auto blocks = static_cast<size_t>(all.count);
  COPPICE_CHECK(scored.size() == blocks);
  // Only blocks with a candidate can be chosen; a block without keys is parked and would have to be computed.
  // If Protection kept a part of a block, that part is attended and the rest stays parked.
  std::vector<float> r(blocks, -kInfinity);
  std::vector<bool> parked(blocks, true);
  for (size_t i = 0; i < candidates.positions.size(); ++i) {
    if (candidates.positions[i] >= seen.prompt_tokens) break;
    const auto j = static_cast<size_t>(candidates.positions[i] / config_.block);
    r[j] = std::max(scored[j], std::numeric_limits<float>::lowest());
    if (candidates.parked[i] == 0) parked[j] = false;
  }
  r.front() = kInfinity;
  std::fill(r.begin() + all.tail, r.end(), kInfinity);
  Blocks& active = active_[stage];
  if (active.empty()) {  // first step: the blocks that prefill kept
    for (size_t j = 0; j < blocks; ++j) {
      if (r[j] > -kInfinity && !parked[j]) active.push_back(static_cast<int32_t>(j));
    }
  }
  // Blocks count positions; budgets count tokens that entered.
  const int64_t count = all.Within(config_.decode_keep[stage] * seen.prompt_tokens / seen.entered_tokens());
  const Blocks cand = BestBlocks(r, parked, count, all.count);
  Blocks common;
  std::set_intersection(cand.begin(), cand.end(), active.begin(), active.end(), std::back_inserter(common));
  const bool over_budget = static_cast<int64_t>(active.size()) > count;
  if (over_budget ||
      ShouldSwap(static_cast<int64_t>(common.size()), static_cast<int64_t>(cand.size()), config_.gamma)) {
    active = BestBlocks(r, parked, count, config_.revive_cap);  // (4)
  }

  std::vector<int32_t> rows;
  for (size_t i = 0; i < candidates.positions.size(); ++i) {
    const int32_t p = candidates.positions[i];
    const bool generated = p >= seen.prompt_tokens;
    const bool stays_parked =
        !generated && candidates.parked[i] != 0 && !parked[static_cast<size_t>(p / config_.block)];
    if (generated || (!stays_parked && std::binary_search(active.begin(), active.end(), p / config_.block))) {
      rows.push_back(static_cast<int32_t>(i));
    }
  }
  return TokenSet::Of(std::move(rows), static_cast<int64_t>(candidates.positions.size()));
}

bool ShouldSwap(int64_t common, int64_t candidates, double gamma) {
  return common * 1000000 < std::llround(gamma * 1e6) * candidates;
}

namespace {

// The budget of each stage in tokens. Values above 1 count tokens. Values up to 1 are shares of the prompt; a
// single share is of what the stage before left (the paper's needle test: "prune 50 % at 10, 20, 30").
std::vector<int64_t> Budgets(std::vector<double> keep, size_t stages, int64_t tokens) {
  const std::string text = fmt::format("{}", fmt::join(keep, "/"));
  const bool compound = keep.size() == 1;
  FillStages(keep, stages, "sliminfer", "keep");
  std::vector<int64_t> budgets;
  double share = 1;
  double before = std::numeric_limits<double>::infinity();
  for (size_t s = 0; s < stages; ++s) {
    const double value = keep[s];
    share = compound ? share * value : value;
    const double count = value > 1 ? value : share * static_cast<double>(tokens);
    if (count > before) {
      throw PruneError(
          "sliminfer: keep={} grows to {:g} of {} tokens; later stages choose among what is left", text,
          count, tokens);
    }
    before = count;
    // Block 0 and the tail stay in any case, and the spec would read a budget of 1 as a share.
    budgets.push_back(
        std::max<int64_t>(value > 1 ? static_cast<int64_t>(std::ceil(value)) : CeilShare(share, tokens), 2));
  }
  return budgets;
}

// Moves the stages so that the first is at `start` (the paper's ablation).
std::vector<int> MoveStages(std::vector<int> layers, int start, const ModelShape& shape) {
  const int shift = layers.empty() ? 0 : start - layers.front();
  for (int& layer : layers) layer += shift;
  std::erase_if(layers, [&](int layer) { return layer >= shape.layer_count(); });
  return layers;
}

struct SlimInferSettings {
  SlimInferConfig config = {.layers = {}, .keep = {}, .revive = true};
  int start = 1;
  std::vector<double> keep = {};
  std::vector<double> decode_keep = {};
  int64_t minimum = 4096;  // the default if keep gives shares of the prompt
};

Keys SlimInferKeys(SlimInferSettings& s, const ModelShape& shape) {
  SlimInferConfig& c = s.config;
  c.layers = StageLayers(shape);
  return {
      LayersKey(c.layers, shape, "blocks are dropped after the attention of these layers",
                "round(L {10,20,30} / 32)")
          .NoValues("none"),
      {"start", &s.start, 1, std::max(shape.layer_count() - 1, 1),
       "moves the default layers so that they begin here", "the first of layers", "1 to L - 1"},
      {"keep", &s.keep, kAboveZero, kManyTokens,
       "tokens to keep at each; one share applies to the remaining tokens",
       "by model, else 1/4, 1/8, 1/16 of the prompt, at least 2048", "tokens, or shares up to 1"},
      {"decode_keep", &s.decode_keep, kAboveZero, kManyTokens, "prompt tokens that a generated one attends",
       "as keep", "tokens, or shares up to 1"},
      {"block", &c.block, 1, 4096, "tokens per block"},
      {"unit", &c.unit, 1, 4096, "tokens whose mean key scores together", "", "1 to 4096, divides block"},
      {"window", &c.window, 1, 4096, "number of last queries, averaged, that score"},
      {"last", &c.last, 1, 4096, "last tokens that are always kept, with the blocks that hold them"},
      {"score", &c.score, "units avg max mass",
       "a block's key: best unit's mean, mean of all, maximum of all; mass: no key, softmax mass in prefill"},
      {"gamma", &c.gamma, 0, 2, "blocks are swapped if less than this share of them stays the same"},
      {"revive", &c.revive, "none aux", "aux: dropped blocks can come back while generating; none: never"},
      {"revive_cap", &c.revive_cap, 0, 4096, "most blocks that come back per stage and generated token"},
      RowScoresKeys(c.scores, shape, "1, of score=mass"),
      {"min", &s.minimum, 0, kManyTokens, "shorter prompts run dense",
       "4096; with keep in tokens the last of them"},
  };
}

// Budgets do not grow from stage to stage.
int64_t LeastBudget(const SlimInferConfig& c) { return std::min(c.keep.back(), c.decode_keep.back()); }

// Why no stage can leave anything out, or "". A prompt that fits the first budget alone is pruned at the
// later stages.
std::string FitsReason(const SlimInferConfig& c, int64_t tokens) {
  if (c.keep.empty()) return "";
  if (tokens <= LeastBudget(c))
    return fmt::format("{} prompt tokens fit its last budget of {}", tokens, LeastBudget(c));
  const SlimInferBlocks blocks(c.block, tokens, std::max<int64_t>(tokens - c.Tail(), 0));
  if (blocks.Within(LeastBudget(c)) < blocks.count) return "";
  return fmt::format("{} prompt tokens are in blocks of {} that always stay", tokens, c.block);
}

// Sets the values that follow from other keys and from the prompt.
void Finish(const Keys& keys, const MethodContext& context, SlimInferSettings& s) {
  SlimInferConfig& c = s.config;
  if (keys.Given("start") && !keys.Given("layers")) c.layers = MoveStages(c.layers, s.start, context.shape);
  s.start = c.layers.empty() ? 1 : c.layers.front();
  if (!keys.Given("unit")) c.unit = std::min(c.unit, c.block);
  if (c.block % c.unit != 0) {
    throw PruneError("sliminfer: unit={} does not divide block={}", c.unit, c.block);
  }
  if (c.score == SlimInferScore::kAvg || c.score == SlimInferScore::kMax) c.unit = c.block;
  const size_t stages = c.layers.size();
  const bool shares = std::any_of(s.keep.begin(), s.keep.end(), [](double keep) { return keep <= 1; });
  c.keep = s.keep.empty() ? SlimInferBudgets(context.shape, context.tokens)
                          : Budgets(s.keep, stages, context.tokens);
  if (stages == 0) c.keep.clear();
  if (c.keep.size() != stages) {
    throw PruneError("sliminfer: layers={} needs keep, one value per layer", fmt::join(c.layers, "/"));
  }
  c.decode_keep = s.decode_keep.empty() ? c.keep : Budgets(s.decode_keep, stages, context.tokens);
  s.keep.assign(c.keep.begin(), c.keep.end());
  s.decode_keep.assign(c.decode_keep.begin(), c.decode_keep.end());
  if (!keys.Given("min") && !shares && stages > 0) s.minimum = LeastBudget(c);
  FindSentences("sliminfer", context, c.scores);
  c.question.assign(context.question.begin(), context.question.end());
}

MethodInstance MakeSlimInfer(const MethodSpec& spec, const MethodContext& context) {
  SlimInferSettings s;
  Keys keys = SlimInferKeys(s, context.shape);
  keys.Read(spec);
  Finish(keys, context, s);
  const SlimInferConfig& c = s.config;
  MethodInstance made =
      MakeInstance<SlimInferPolicy>(keys,
                                    {StageReason(c.layers, context.shape), FitsReason(c, context.tokens),
                                     LengthReason(context, s.minimum), WindowReason(context)},
                                    c);
  // Without these, decode decides nothing.
  if (!c.revive && c.decode_keep == c.keep) made.switched_off = kRevives;
  return made;
}

}  // namespace

MethodInfo SlimInferMethod() {
  return {"sliminfer",
          "drop blocks of hidden states at a few layers; later layers do not compute them",
          "SlimInfer: accelerating long-context LLM inference via dynamic token pruning, arXiv 2508.06447",
          kDropsRows | kRevives,
          HelpOf(&SlimInferKeys),
          &MakeSlimInfer};
}

}  // namespace coppice
