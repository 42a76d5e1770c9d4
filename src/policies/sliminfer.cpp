// SlimInfer: dynamic pruning of hidden states by blocks, for long prompts. No training.
//
// The stream is split into blocks of B rows, each into units of u rows. After the attention of a deciding layer
//   q̄^h   = mean of the last w queries                                   (1)
//   r(j)  = max over units m of block j of (1/H) sum_h q̄^h . k̄^g(h)(j,m)  (2) raw dots, k̄ the unit's mean key
//   keep  = block 0, the tail block, and the best by r, k_s tokens in all (3) ties: the earlier block
// The rows of the other blocks leave the stream before this layer's FFN: they have no keys in later layers.
//
// Deciding layer: p_s - 1, so that layers >= p_s hold exactly k_s rows. This reading reproduces the paper's
// memory table (32k tokens, Llama-3.1-8B, fp16: 10 * 32768 + 10 * 8192 + 10 * 4096 + 2 * 2048 rows = 1.73 GiB
// of 4.00) and its FLOP ratio (bound 2.62, measured 2.53); p_s does not.
//
// Later stages choose among the survivors. Their blocks are blocks of the prompt again, because whole blocks
// were dropped before; only rows that something else protected shift the borders, and come on top of k_s.
//
// While generating, every deciding layer scores again, now all blocks that have keys in it, wherever these are
// kept, with the last w queries of prompt and answer:
//   cand    = block 0, the tail, and the best by r                        (3)
//   active  = cand if |cand and active| / |cand| < gamma, else unchanged  (4) Algorithm 1
// Layers (p_s - 1, p_{s+1} - 1] attend the active blocks and all generated tokens. What is not active gives up
// its hot memory. A block that was dropped in prefill has no keys in those layers, which the paper passes
// over; it is built on LazyLLM, so with revive=aux its hidden states were parked where they left, and at most
// revive_cap blocks a step, the best first, come back from there: they run the FFN that they owe and the
// layers of the segment. With revive=none cand is made of blocks that have keys.
#include "policies/sliminfer.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "policies/presets.h"
#include "policies/stages.h"

namespace coppice {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

SlimInferPolicy::SlimInferPolicy(SlimInferConfig config)
    : config_(std::move(config)), sum_(config_.scores.sum) {
  if (config_.decode_keep.empty()) config_.decode_keep = config_.keep;
  COPPICE_CHECK(config_.layers.size() == config_.keep.size() && config_.block % config_.unit == 0);
  COPPICE_CHECK(config_.layers.size() == config_.decode_keep.size());
  // Otherwise the candidates of every step are the active blocks.
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
  if (config_.by_mass && phase == Phase::kPrefill) {
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
  return config_.by_mass && std::any_of(config_.layers.begin(), config_.layers.end(), [&](int stage) {
           return config_.scores.Counts(Phase::kPrefill, layer, stage - 1);
         });
}

// Not in the paper: raw products are large where keys are large; the softmax of each head says what it looks at.
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

  std::vector<float> r =
      config_.by_mass ? BlockMass(mass, seen.positions) : BlockScores(seen.UnitScores(Units()));
  const auto blocks = static_cast<int64_t>(r.size());
  r.front() = r.back() = kInfinity;  // block 0 and the tail stay
  const int64_t kept_blocks = std::max<int64_t>(budget / config_.block, std::min<int64_t>(2, blocks));
  const TokenSet best = be.TopK(TensorView(r.data(), DType::kF32, 1, blocks), kept_blocks);  // (3)

  std::vector<int32_t> kept;
  kept.reserve(static_cast<size_t>(kept_blocks * config_.block));
  for (const int32_t j : best.ToRows()) {
    const int64_t end = std::min<int64_t>((j + 1) * config_.block, rows);
    for (int64_t row = j * config_.block; row < end; ++row) kept.push_back(static_cast<int32_t>(row));
  }
  // Rows that something else protected may have shifted the borders; the tail block stays whole.
  const int32_t tail = seen.positions.back() / config_.block * config_.block;
  const auto before_tail = std::lower_bound(seen.positions.begin(), seen.positions.end(), tail);
  return TokenSet::Of(std::move(kept), rows).UnionLast(seen.positions.end() - before_tail);
}

DecodePoint SlimInferPolicy::AttendsAt(int layer) const {
  return decides_in_decode_ && StageAfter(layer) >= 0 ? DecodePoint::kAfterAttention : DecodePoint::kNone;
}

// (3) over blocks of positions: the best by (r descending, block ascending), no more than revive_cap of those
// that would have to be computed.
SlimInferPolicy::Blocks SlimInferPolicy::BestBlocks(const std::vector<float>& r,
                                                    const std::vector<bool>& parked, int64_t count) const {
  Blocks order;
  for (size_t j = 0; j < r.size(); ++j) {
    if (r[j] > -kInfinity) order.push_back(static_cast<int32_t>(j));
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return r[static_cast<size_t>(a)] > r[static_cast<size_t>(b)];
  });
  Blocks best;
  int room_for_parked = config_.revive_cap;
  for (const int32_t j : order) {
    if (static_cast<int64_t>(best.size()) == count) break;
    // Block 0 and the tail are not a matter of the cap.
    if (parked[static_cast<size_t>(j)] && r[static_cast<size_t>(j)] < kInfinity && room_for_parked-- <= 0)
      continue;
    best.push_back(j);
  }
  std::sort(best.begin(), best.end());
  return best;
}

TokenSet SlimInferPolicy::Attend(const Observation& seen, const Candidates& candidates, Backend& /*be*/) {
  const auto stage = static_cast<size_t>(StageAfter(seen.layer));
  const std::vector<float> scored = BlockScores(seen.UnitScores(Units()));
  const auto blocks = static_cast<size_t>((seen.prompt_tokens + config_.block - 1) / config_.block);
  COPPICE_CHECK(scored.size() == blocks);
  // Only blocks with a candidate can be chosen; one without keys would have to be computed. Of a block of which
  // protection kept a part, that part is attended and the rest stays parked.
  std::vector<float> r(blocks, -kInfinity);
  std::vector<bool> parked(blocks, true);
  for (size_t i = 0; i < candidates.positions.size(); ++i) {
    if (candidates.positions[i] >= seen.prompt_tokens) break;
    const auto j = static_cast<size_t>(candidates.positions[i] / config_.block);
    r[j] = std::max(scored[j], std::numeric_limits<float>::lowest());
    if (candidates.parked[i] == 0) parked[j] = false;
  }
  r.front() = r.back() = kInfinity;  // block 0 and the tail stay
  Blocks& active = active_[stage];
  if (active.empty()) {  // what prefill kept
    for (size_t j = 0; j < blocks; ++j) {
      if (r[j] > -kInfinity && !parked[j]) active.push_back(static_cast<int32_t>(j));
    }
  }
  // A budget that covers the prompt covers the tail block, however short that is.
  const int64_t budget = config_.decode_keep[stage];
  const auto all = static_cast<int64_t>(blocks);
  const int64_t count = budget >= seen.prompt_tokens
                            ? all
                            : std::max<int64_t>(budget / config_.block, std::min<int64_t>(2, all));
  Blocks cand = BestBlocks(r, parked, count);
  Blocks common;
  std::set_intersection(cand.begin(), cand.end(), active.begin(), active.end(), std::back_inserter(common));
  const bool over_budget = static_cast<int64_t>(active.size()) > count;
  if (over_budget ||
      ShouldSwap(static_cast<int64_t>(common.size()), static_cast<int64_t>(cand.size()), config_.gamma)) {
    active = std::move(cand);  // (4)
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

// The budget of stage s. A value above 1 counts tokens; values up to 1 are shares of the prompt, or, where
// one value stands for all stages, of what the stage before left (the paper's needle test: "prune 50 % at 10,
// 20, 30").
std::vector<int64_t> Budgets(const std::vector<double>& keep, size_t stages, int64_t tokens) {
  if (keep.size() != 1 && keep.size() != stages) {
    throw Error("--prune sliminfer: keep has {} values for {} layers", keep.size(), stages);
  }
  std::vector<int64_t> budgets;
  double share = 1;
  double before = std::numeric_limits<double>::infinity();
  for (size_t s = 0; s < stages; ++s) {
    const double value = keep[keep.size() == 1 ? 0 : s];
    share = keep.size() == 1 ? share * value : value;
    const double count = value > 1 ? value : share * static_cast<double>(tokens);
    if (count > before) {
      throw Error(
          "--prune sliminfer: keep={} grows to {:g} of {} tokens; later stages choose among what is left",
          fmt::join(keep, "/"), count, tokens);
    }
    before = count;
    // Block 0 and the tail stay anyway; and a budget of 1 would read as a share of 1.
    budgets.push_back(
        std::max<int64_t>(value > 1 ? static_cast<int64_t>(std::ceil(value)) : CeilShare(share, tokens), 2));
  }
  return budgets;
}

// The preset's stages, moved so that the first stands at `start` (the papers' ablation).
std::vector<int> Stages(SpecReader& read, const ModelShape& shape) {
  std::vector<int> layers = StageLayers(shape);
  const auto start = static_cast<int>(
      read.Integer("start", layers.empty() ? 1 : layers.front(), 1, std::max(shape.layers - 1, 1)));
  if (layers.empty()) return layers;
  const int shift = start - layers.front();
  for (int& layer : layers) layer += shift;
  std::erase_if(layers, [&](int layer) { return layer >= shape.layers; });
  return layers;
}

MethodInstance MakeSlimInfer(const MethodSpec& spec, const MethodContext& context) {
  const ModelShape& shape = context.shape;
  SpecReader read(spec);
  SlimInferConfig config;
  config.layers = read.Integers("layers", Stages(read, shape), 1, shape.layers - 1);
  for (size_t s = 1; s < config.layers.size(); ++s) {
    if (config.layers[s] <= config.layers[s - 1]) {
      throw Error("--prune sliminfer: layers={} must ascend", fmt::join(config.layers, "/"));
    }
  }
  config.block = static_cast<int>(read.Integer("block", config.block, 1, 4096));
  config.unit = static_cast<int>(read.Integer("unit", std::min(config.unit, config.block), 1, 4096));
  if (config.block % config.unit != 0) {
    throw Error("--prune sliminfer: unit={} does not divide block={}", config.unit, config.block);
  }
  config.window = static_cast<int>(read.Integer("window", config.window, 1, 4096));
  const std::vector<double> keep = read.Numbers("keep", {}, 1e-6, static_cast<double>(kManyTokens));
  config.keep = keep.empty() ? SlimInferBudgets(shape, context.tokens)
                             : Budgets(keep, config.layers.size(), context.tokens);
  if (keep.empty() && config.keep.size() != config.layers.size()) {
    throw Error("--prune sliminfer: layers={} needs keep, one value per layer",
                fmt::join(config.layers, "/"));
  }
  const std::vector<double> decode_keep =
      read.Numbers("decode_keep", {}, 1e-6, static_cast<double>(kManyTokens));
  config.decode_keep =
      decode_keep.empty() ? config.keep : Budgets(decode_keep, config.layers.size(), context.tokens);
  const std::string score = read.Choice("score", {"units", "avg", "max", "mass"});
  config.by_mass = score == "mass";
  config.scores = ReadRowScores(read, {}, context);
  config.question.assign(context.question.begin(), context.question.end());
  if (score == "avg" || score == "max") config.unit = config.block;
  if (score == "max") config.pool = KeyPool::kMax;
  config.gamma = read.Number("gamma", config.gamma, 0, 2);
  const std::string revive = read.Choice("revive", {"aux", "none"});
  config.revive = revive == "aux";
  config.revive_cap = static_cast<int>(read.Integer("revive_cap", config.revive_cap, 0, 4096));
  const int64_t minimum = read.Integer("min", 4096, 0, kManyTokens);
  read.RefuseUnknownKeys();

  MethodInstance made;
  // Where nothing is decided while generating.
  if (!config.revive && config.decode_keep == config.keep) made.switched_off = kRevives;
  made.settings = fmt::format(
      "sliminfer:layers={},start={},keep={},decode_keep={},block={},unit={},window={},score={},gamma={},"
      "revive={},revive_cap={},{},min={}",
      fmt::join(config.layers, "/"), config.layers.empty() ? 1 : config.layers.front(),
      fmt::join(config.keep, "/"), fmt::join(config.decode_keep, "/"), config.block, config.unit,
      config.window, score, config.gamma, revive, config.revive_cap, RowScoresText(config.scores), minimum);
  if (config.layers.empty()) made.reason = fmt::format("{} layers leave no stage to prune at", shape.layers);
  if (made.reason.empty()) made.reason = LengthReason(context, minimum);
  if (made.reason.empty() && context.tokens <= config.keep.front()) {
    made.reason =
        fmt::format("{} prompt tokens fit its first budget of {}", context.tokens, config.keep.front());
  }
  if (made.reason.empty()) made.reason = WindowReason(context);
  if (made.reason.empty()) made.policy = std::make_unique<SlimInferPolicy>(std::move(config));
  return made;
}

}  // namespace

MethodInfo SlimInferMethod() {
  MethodInfo info{
      "sliminfer",
      "drop blocks of hidden states at a few layers; later layers never see them",
      "SlimInfer: accelerating long-context LLM inference via dynamic token pruning, arXiv 2508.06447",
      kDropsRows | kRevives,
      {{"layers", "round(L {10,20,30} / 32)", "1 to L - 1", "from these layers on fewer tokens remain"},
       {"start", "the first of layers", "1 to L - 1", "moves the default layers so that they begin here"},
       {"keep", "by model, else 1/4, 1/8, 1/16 of the prompt, at least 2048", "tokens, or shares up to 1",
        "tokens that remain at each; one share: of what is left"},
       {"decode_keep", "as keep", "tokens, or shares up to 1", "prompt tokens that a generated one attends"},
       {"block", "64", "1 to 4096", "tokens per block"},
       {"unit", "8", "1 to 4096, divides block", "tokens whose mean key scores together"},
       {"window", "4", "1 to 4096", "last queries, averaged, that score"},
       {"score", "units", "units, avg, max, mass",
        "a block's key: best unit's mean, mean of all, maximum of all; mass: no key, softmax mass in "
        "prefill"},
       {"gamma", "0.9", "0 to 2", "blocks are exchanged where less than this share of them stays the same"},
       {"revive", "aux", "aux, none", "whether dropped blocks can come back while generating"},
       {"revive_cap", "4", "0 to 4096", "blocks that may come back per stage and generated token"},
       {"min", "4096", "0 up", "shorter prompts run dense"}},
      &MakeSlimInfer};
  AddRowScoresKeys("1, of score=mass", "min", info.keys);
  return info;
}

}  // namespace coppice
