#include "engine/dry_run.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

#include "model/layer.h"
#include "model/sequence.h"
#include "policies/registry.h"

namespace coppice {

namespace {

// Deterministic on every machine, unlike the distributions of <random>.
class Variates {
 public:
  float Exponential() { return static_cast<float>(-std::log(Uniform())); }
  float Normal() {
    float sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<float>(Uniform());
    return sum;
  }

 private:
  double Uniform() {  // (0, 1]
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>((state_ >> 11) + 1) * 0x1p-53;
  }
  uint64_t state_ = 1;
};

// The prompt's tokens on their way through layers that are not there.
class Walk {
 public:
  Walk(const ModelConfig& config, int64_t tokens, TokenPolicy& policy, Backend& be);
  Ledger Run();

 private:
  void Prefill(int layer);
  void Choose(const TokenSet& kept, int depth, bool ffn_owed);
  void Compact(const TokenSet& kept);
  void FillScores(const Needs& needs);
  double Density(int layer);
  void Retain(int layer);
  void ChooseAttended(int layer);
  void TakeBack(std::vector<int32_t> returning, int begin, int end);
  void Offload(const std::vector<int32_t>& attended_blocks, int begin, int end);
  std::vector<int32_t> BlocksOf(const std::vector<int32_t>& positions) const;
  int64_t RowBytes() const { return LayerBytes(shape_, be_.cache_dtype()); }

  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  struct Place {
    int depth = 0;  // layers that hold the token's keys
    bool ffn_owed = false;
    bool parked = false;
  };

  const ModelConfig& config_;
  const ModelShape& shape_;
  TokenPolicy& policy_;
  Backend& be_;
  int64_t tokens_;
  Ledger ledger_;
  Variates variates_;
  Observation seen_;
  std::vector<int32_t> positions_;           // of the stream
  std::vector<int32_t> entered_;             // Observation::entered
  std::vector<Place> places_;                // of every position
  std::vector<int64_t> cached_;              // [layers] rows
  std::vector<int32_t> running_;             // decode: tokens that came back and are computed
  std::unique_ptr<std::byte, Free> hidden_;  // zeros that take no memory until a policy reads them
  std::map<int64_t, double> densities_;      // by rows: a layer's pattern costs seconds, and all get the like
};

Walk::Walk(const ModelConfig& config, int64_t tokens, TokenPolicy& policy, Backend& be)
    : config_(config),
      shape_(config.shape),
      policy_(policy),
      be_(be),
      tokens_(tokens),
      ledger_(shape_, tokens) {
  positions_ = policy.Input(tokens, be).ToRows();
  if (policy.Facts().compact_positions) {
    std::iota(positions_.begin(), positions_.end(), 0);
    tokens_ = static_cast<int64_t>(positions_.size());
  }
  if (std::ssize(positions_) < tokens_) entered_ = positions_;
  seen_.entered = entered_;
  places_.resize(static_cast<size_t>(tokens_));
  for (const int32_t p : positions_) places_[static_cast<size_t>(p)].depth = shape_.layers;
  cached_.resize(static_cast<size_t>(shape_.layers));
  hidden_.reset(static_cast<std::byte*>(
      std::calloc(positions_.size(), static_cast<size_t>(BytesOf(DType::kF32, shape_.hidden)))));
  if (!hidden_) throw std::bad_alloc();
  seen_.layers = shape_.layers;
  seen_.prompt_tokens = tokens_;
  Compact(TokenSet::All(static_cast<int64_t>(positions_.size())));
}

void Walk::Compact(const TokenSet& kept) {
  COPPICE_CHECK(kept.universe() == static_cast<int64_t>(positions_.size()) && kept.size() > 0);
  seen_.KeepRows(kept, be_);
  std::vector<int32_t> left;
  for (const int32_t row : kept.ToRows()) left.push_back(positions_[static_cast<size_t>(row)]);
  positions_ = std::move(left);
  seen_.positions = positions_;
  seen_.hidden = {hidden_.get(), DType::kF32, seen_.rows(), shape_.hidden};
}

void Walk::Choose(const TokenSet& kept, int depth, bool ffn_owed) {
  for (int64_t row = 0; !kept.IsAll() && row < kept.universe(); ++row) {
    if (kept.Contains(row)) continue;
    const bool parked = policy_.Facts().parks && depth < shape_.layers;
    places_[static_cast<size_t>(positions_[static_cast<size_t>(row)])] = {depth, ffn_owed, parked};
    if (parked) ledger_.aux_bytes += ParkedBytes(shape_, be_.cache_dtype());
  }
  Compact(kept);
}

void Walk::FillScores(const Needs& needs) {
  seen_.ClearScores();
  const auto fill = [&](const MutableTensorView& scores) {
    for (int64_t list = 0; list < scores.rows; ++list) {
      for (float& score : scores.Row<float>(list)) score = variates_.Exponential();
    }
  };
  for (const Needs::Mass& mass : needs.masses)
    fill(seen_.AddMass(mass, mass.per_kv_head ? shape_.kv_heads : 1));
  const int64_t rows = seen_.phase == Phase::kPrefill ? seen_.rows() : tokens_;
  for (const Needs::Units& units : needs.unit_scores)
    fill(seen_.AddUnitScores(units, (rows + units.unit - 1) / units.unit));
}

// Of random queries over random keys.
double Walk::Density(int layer) {
  const int64_t rows = seen_.rows();
  if (const auto known = densities_.find(rows); known != densities_.end()) return known->second;
  const auto random = [&](int64_t width) {
    Tensor t(DType::kF32, rows, width);
    for (int64_t i = 0; i < rows; ++i) {
      for (float& x : t.mutable_view().Row<float>(i)) x = variates_.Normal();
    }
    return t;
  };
  const std::vector<float> slopes = config_.shape.alibi ? AlibiSlopes(shape_.heads) : std::vector<float>{};
  const Tensor queries = random(int64_t{shape_.heads} * shape_.head_dim);
  const Tensor exact = random(int64_t{shape_.kv_heads} * shape_.head_dim);
  Tensor keys(be_.cache_dtype(), exact.rows(), exact.cols());
  be_.Convert(exact.view(), keys.mutable_view());
  AttentionScene scene;
  scene.layer = layer;
  scene.pruned = layer > 0 && cached_[static_cast<size_t>(layer)] < cached_.front();
  scene.in = {{.heads = shape_.heads,
               .kv_heads = shape_.kv_heads,
               .head_dim = shape_.head_dim,
               .scale = 1 / std::sqrt(static_cast<float>(shape_.head_dim)),
               .window = shape_.window,
               .alibi_slopes = slopes},
              queries.view(),
              keys.view(),
              keys.view(),
              positions_,
              positions_};
  const SparsePattern pattern = policy_.Pattern(scene, be_);
  const double density = pattern.empty() ? 1 : PatternDensity(pattern, rows, rows);
  return densities_[rows] = density > kNearlyDense ? 1 : density;
}

void Walk::Retain(int layer) {
  if (!policy_.RetainsAt(Phase::kPrefill, layer)) return;
  const std::optional<Retained> kept = policy_.Retain(seen_, {seen_.rows(), {positions_}, {}}, be_);
  if (kept) cached_[static_cast<size_t>(layer)] = kept->rows.front().size();
}

// As Layer::Forward asks.
void Walk::Prefill(int layer) {
  const bool last = layer + 1 == shape_.layers;
  seen_.layer = layer;
  Choose(policy_.BeforeLayer(seen_, be_), layer, false);
  LayerCounts& counts = ledger_.layer(layer);
  counts.kv_rows = seen_.rows();
  counts.query_rows = last ? 1 : seen_.rows();
  cached_[static_cast<size_t>(layer)] = seen_.rows();
  if (!last && policy_.ChoosesPattern(Phase::kPrefill, layer)) counts.density = Density(layer);
  FillScores(last && !policy_.RetainsAt(Phase::kPrefill, layer) ? Needs{}
                                                                : policy_.NeedsAt(Phase::kPrefill, layer));
  Retain(layer);
  if (last) Compact(TokenSet::None(seen_.rows()).UnionLast(1));
  Choose(policy_.AfterAttention(seen_, be_), layer + 1, true);
  counts.ffn_rows = policy_.RunFfn(seen_, be_).size();
}

std::vector<int32_t> Walk::BlocksOf(const std::vector<int32_t>& positions) const {
  std::vector<int32_t> blocks;
  for (const int32_t p : positions) {
    const int32_t block = p / policy_.Facts().offload_block;
    if (p < tokens_ && (blocks.empty() || blocks.back() != block)) blocks.push_back(block);
  }
  return blocks;
}

// The first token's choice of what the layers behind `layer` attend: chosen tokens that are parked come back,
// and blocks that are not attended give up their hot memory.
void Walk::ChooseAttended(int layer) {
  const auto current = static_cast<int32_t>(tokens_);
  seen_.layer = layer;
  std::vector<int32_t> cached;
  for (int32_t p = 0; p < current; ++p) {
    if (places_[static_cast<size_t>(p)].depth > layer) cached.push_back(p);
  }
  cached.push_back(current);
  seen_.positions = cached;
  FillScores(policy_.NeedsAt(Phase::kDecode, layer));
  const DecodePoint point = policy_.AttendsAt(layer);
  if (point == DecodePoint::kNone) return;
  const bool before = point == DecodePoint::kBeforeLayer;
  const int depth = before ? layer : layer + 1;
  std::vector<int32_t> candidates;
  std::vector<uint8_t> parked;
  for (int32_t p = 0; p < current; ++p) {
    const Place& place = places_[static_cast<size_t>(p)];
    const bool waits = place.parked && place.depth == depth && place.ffn_owed != before;
    if (place.depth <= depth && !waits && depth < shape_.layers) continue;
    candidates.push_back(p);
    parked.push_back(waits);
  }
  candidates.push_back(current);
  parked.push_back(0);
  std::vector<int32_t> attended;
  std::vector<int32_t> returning;
  for (const int32_t row : policy_.Attend(seen_, {candidates, parked}, be_).ToRows()) {
    attended.push_back(candidates[static_cast<size_t>(row)]);
    if (parked[static_cast<size_t>(row)] != 0) returning.push_back(attended.back());
  }
  int end = layer + 2;
  while (end < shape_.layers && policy_.AttendsAt(end - 1) == DecodePoint::kNone) ++end;
  end = std::min(end, shape_.layers);
  TakeBack(std::move(returning), depth, end);
  Offload(BlocksOf(attended), layer + 1, end);
}

// Computes what returns in the layers [begin, end). Until the next choice, it counts as parked there.
void Walk::TakeBack(std::vector<int32_t> returning, int begin, int end) {
  const int64_t state_bytes = ParkedBytes(shape_, be_.cache_dtype());
  for (const int32_t p : returning) {
    const bool last = end == shape_.layers;
    places_[static_cast<size_t>(p)] = {end, !last, !last};
    ledger_.kv_bytes += (end - begin) * RowBytes();
    if (last) ledger_.aux_bytes -= state_bytes;
    if (!std::binary_search(running_.begin(), running_.end(), p)) ++ledger_.revived;
  }
  running_ = std::move(returning);
}

void Walk::Offload(const std::vector<int32_t>& attended_blocks, int begin, int end) {
  const int block = policy_.Facts().offload_block;
  int64_t cold = 0;
  for (int l = begin; l < end; ++l) {
    for (int32_t p = 0; p < static_cast<int32_t>(tokens_); ++p) {
      const bool hot = places_[static_cast<size_t>(p)].depth > l;
      if (hot && !std::binary_search(attended_blocks.begin(), attended_blocks.end(), p / block)) ++cold;
    }
  }
  ledger_.cold_bytes += cold * RowBytes();
  if (cold > 0) ++ledger_.swaps;
}

Ledger Walk::Run() {
  for (int layer = 0; layer < shape_.layers; ++layer) Prefill(layer);
  const int64_t rows = std::accumulate(cached_.begin(), cached_.end(), int64_t{0});
  ledger_.kv_bytes = rows * RowBytes();
  ledger_.kv_bytes_dense = ledger_.prompt_tokens() * shape_.layers * RowBytes();
  ledger_.NoteHeld(ledger_.kv_bytes, ledger_.aux_bytes);
  if (policy_.Facts().offload_block > 0) {
    seen_.phase = Phase::kDecode;
    seen_.hidden = {};
    for (int layer = 0; layer + 1 < shape_.layers; ++layer) ChooseAttended(layer);
    ledger_.kv_bytes -= ledger_.cold_bytes;
  }
  return std::move(ledger_);
}

}  // namespace

DryRun PlanRun(const ModelConfig& config, std::span<const int32_t> prompt, std::string_view prune,
               Backend& be) {
  const MethodContext context{.shape = config.shape,
                              .tokens = static_cast<int64_t>(prompt.size()),
                              .prompt = prompt,
                              .parked_bytes = ParkedBytes(config.shape, be.cache_dtype()),
                              .layer_bytes = LayerBytes(config.shape, be.cache_dtype())};
  PruneChoice choice = MakePolicy(prune, context, {});
  Ledger ledger = Walk(config, context.tokens, *choice.policy, be).Run();
  return {std::move(ledger), std::move(choice.spec), choice.active, std::move(choice.reason)};
}

}  // namespace coppice
