#include "model/prefix.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "base/check.h"
#include "tensor/device_memory.h"

namespace coppice {

namespace {

Tensor CopyOf(const TensorView& from) {
  Tensor copy(from.dtype, from.rows, from.cols);
  CopyRows(from, copy.mutable_view());
  return copy;
}

}  // namespace

int64_t PrefixState::bytes() const {
  int64_t sum = hidden.bytes() + static_cast<int64_t>(tokens.size() * sizeof(int32_t));
  for (const Layer& layer : layers) sum += layer.keys.bytes() + layer.values.bytes();
  for (const auto& checkpoint : checkpoints) {
    for (const RecurrentSnapshot& state : checkpoint->layers) sum += state.bytes();
  }
  return sum;
}

int64_t PrefixState::ReusableRows(int64_t rows) const {
  if (!has_states) return rows;
  int64_t most = 0;
  for (const auto& checkpoint : checkpoints) {
    if (checkpoint->rows <= rows) most = checkpoint->rows;
  }
  return most;
}

std::vector<int64_t> CheckpointsOf(int64_t rows, int64_t reused, int64_t tail,
                                   std::span<const int64_t> turns) {
  std::vector<int64_t> wanted;
  for (int64_t row = kCheckpointEvery; row < rows; row += kCheckpointEvery) wanted.push_back(row);
  for (const int64_t turn : turns) {
    if (turn < rows) wanted.push_back(turn);
  }
  std::ranges::sort(wanted);
  std::set<int64_t> kept = {rows};
  // Queries that score are computed again, so a run of the same method ends its reuse in front of them.
  if (tail > 1 && tail < rows) kept.insert(rows - tail);
  int64_t last = rows;
  int64_t near_end = 2;
  for (auto row = wanted.rbegin(); row != wanted.rend(); ++row) {
    const bool is_last_turn = near_end > 0 && std::ranges::binary_search(turns, *row);
    if (!is_last_turn && *row > last - kLeastBetweenCheckpoints) continue;
    near_end -= is_last_turn ? 1 : 0;
    last = *row;
    kept.insert(last);
  }
  kept.erase(kept.begin(), kept.upper_bound(reused));
  return {kept.begin(), kept.end()};
}

int64_t PrefixBytes(const ModelShape& shape, DType cache_type, LayerPoint point, int64_t tokens,
                    int64_t checkpoints) {
  int64_t row = point.layer < shape.layer_count() ? BytesOf(DType::kF32, shape.hidden) : 0;
  for (int l = 0; l < LayersWithKeys(point); ++l) row += 2 * BytesOf(cache_type, shape.layer(l).key_width());
  int64_t states = 0;
  for (int l = 0; l < LayersWithKeys(point); ++l) states += shape.layer(l).state_bytes();
  return tokens * (row + static_cast<int64_t>(sizeof(int32_t))) + checkpoints * states;
}

namespace {

// The number of rows from the first query that scores to the end of the prompt.
int64_t TailOf(const Needs::Mass& mass, int64_t tokens) {
  int64_t wanted = mass.queries;
  int64_t first = mass.of.empty() ? tokens - wanted : tokens;
  for (auto span = mass.of.rbegin(); span != mass.of.rend() && wanted > 0; ++span) {
    first = std::max(span->begin, span->end - wanted);
    wanted -= span->end - first;
  }
  return tokens - first;
}

// The number of rows in `spans`, which ascend.
int64_t RowsIn(std::span<const PositionSpan> spans) {
  return std::accumulate(spans.begin(), spans.end(), int64_t{0},
                         [](int64_t sum, const PositionSpan& span) { return sum + span.end - span.begin; });
}

// The position of the `count`-th last row of `spans`; 0 if they have fewer rows.
int64_t LastOf(std::span<const PositionSpan> spans, int64_t count) {
  for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
    if (count <= span->end - span->begin) return span->end - count;
    count -= span->end - span->begin;
  }
  return 0;
}

std::vector<PositionSpan> Both(std::span<const PositionSpan> a, std::span<const PositionSpan> b) {
  std::vector<PositionSpan> both;
  for (const PositionSpan& one : a) {
    for (const PositionSpan& other : b) {
      const PositionSpan common{std::max(one.begin, other.begin), std::min(one.end, other.end)};
      if (common.begin < common.end) both.push_back(common);
    }
  }
  return both;
}

// No query before this position scores, whatever rows the policy leaves out. The last `queries` rows of those
// that are left include the last `queries` of those that always stay, and so do those of the question.
int64_t FirstScoring(const Needs::Mass& mass, std::span<const PositionSpan> stay) {
  const std::vector<PositionSpan> question = Both(mass.of, stay);
  if (question.empty()) {
    const int64_t last = LastOf(stay, mass.queries);
    return mass.of.empty() ? last : std::min(last, mass.of.front().begin);
  }
  return RowsIn(question) < mass.queries ? mass.of.front().begin : LastOf(question, mass.queries);
}

// Fills in PrefixRules::dense and dense_taken.
void AddDenseRows(const TokenPolicy& policy, int layers, int64_t tokens, PrefixRules& rules) {
  const std::vector<PositionSpan> stay = policy.AlwaysStay(tokens);
  if (stay.empty() || stay.front().begin > 0 || policy.Facts().fills) return;
  const int64_t dense = stay.front().end;
  int64_t taken = std::min(dense, tokens - 1);
  for (int l = 0; l < layers; ++l) {
    const Needs needs = policy.NeedsAt(Phase::kPrefill, l);
    const bool all = std::any_of(needs.masses.begin(), needs.masses.end(),
                                 [](const Needs::Mass& mass) { return mass.queries == Needs::kAllQueries; });
    if (all || policy.ChoosesPattern(Phase::kPrefill, l) || policy.ReadsHidden(l) ||
        policy.ProbesAttention(l))
      return;
    for (const Needs::Mass& mass : needs.masses) taken = std::min(taken, FirstScoring(mass, stay));
    for (const Needs::Units& units : needs.unit_scores) taken = std::min(taken, LastOf(stay, units.queries));
  }
  rules.dense = dense;
  rules.dense_taken = taken;
}

}  // namespace

PrefixRules RulesOf(const TokenPolicy& policy, int layers, int64_t tokens) {
  PrefixRules rules{.point = policy.FirstChoice()};
  // After the last layer's attention only one row remains, so no policy chooses any more.
  if (rules.point >= LayerPoint{layers - 1, true}) rules.point = {layers, false};
  for (int l = 0; l < LayersWithKeys(rules.point); ++l) {
    const Needs needs = policy.NeedsAt(Phase::kPrefill, l);
    const bool all = std::any_of(needs.masses.begin(), needs.masses.end(),
                                 [](const Needs::Mass& mass) { return mass.queries == Needs::kAllQueries; });
    // A pattern depends on queries, and a prefix does not keep the queries of its rows.
    if (all || policy.ChoosesPattern(Phase::kPrefill, l)) {
      rules.point = {l, false};
      break;
    }
    for (const Needs::Mass& mass : needs.masses) rules.tail = std::max(rules.tail, TailOf(mass, tokens));
    for (const Needs::Units& units : needs.unit_scores)
      rules.tail = std::max<int64_t>(rules.tail, units.queries);
  }
  AddDenseRows(policy, layers, tokens, rules);
  return rules;
}

void RestoreKeys(const PrefixUse& use, size_t layer, LayerCache& cache) {
  COPPICE_CHECK(use.rows > 0 && use.rows <= use.state->rows());
  if (cache.width() == 0) return;
  std::vector<int32_t> positions(static_cast<size_t>(use.rows));
  std::iota(positions.begin(), positions.end(), 0);
  const LayerCache::Fresh fresh = cache.Append(positions);
  CopyRows(use.state->layers[layer].keys.view().Rows(0, use.rows), fresh.keys);
  CopyRows(use.state->layers[layer].values.view().Rows(0, use.rows), fresh.values);
}

PrefixCapture::PrefixCapture(LayerPoint point, int layers, int64_t rows, std::vector<int64_t> checkpoints)
    : point_(point), layers_(layers), rows_(rows), wanted_checkpoints_(std::move(checkpoints)) {
  COPPICE_CHECK(point > LayerPoint() && point <= (LayerPoint{layers, false}));
}

std::span<const int64_t> PrefixCapture::CheckpointsIn(int layer) const {
  return !complete_ && layer < LayersWithKeys(point_) ? std::span<const int64_t>(wanted_checkpoints_)
                                                      : std::span<const int64_t>();
}

void PrefixCapture::Add(int layer, int64_t checkpoint, RecurrentSnapshot state) {
  std::vector<RecurrentSnapshot>& layers = checkpoints_[checkpoint];
  layers.resize(static_cast<size_t>(layer) + 1);
  layers.back() = std::move(state);
}

void PrefixCapture::CopyHidden(LayerPoint at, const TensorView& hidden) {
  const TensorView wanted = Wanted(hidden);
  hidden_.Resize(DType::kF32, wanted.rows, wanted.cols);
  CopyRows(wanted, hidden_.mutable_view());
  reached_ = at;
}

void PrefixCapture::Reach(LayerPoint at, const TensorView& hidden, const LayerState& layer) {
  if (complete_) return;
  if (at.after_attention) {
    COPPICE_CHECK(static_cast<size_t>(at.layer) == captured_.size());
    const LayerCache& cache = layer.cache;
    if (layer.recurrent.bytes() > 0 && !first_state_) first_state_ = captured_.size();
    if (cache.width() == 0) {
      captured_.emplace_back();
    } else {
      captured_.push_back({CopyOf(Wanted(cache.keys())), CopyOf(Wanted(cache.values()))});
    }
  }
  // The states before layer 0 are the embeddings, which cost nothing to compute again.
  if (!hidden.empty() && at > LayerPoint() && (!at.after_attention || at == point_)) CopyHidden(at, hidden);
  // No layer begins after the last one, so its attention is the last point that is reached.
  complete_ = at == point_ || (point_.layer == layers_ && at == LayerPoint{layers_ - 1, true});
}

std::shared_ptr<const PrefixState> PrefixCapture::Take(std::vector<int32_t> tokens,
                                                       const PrefixOwner& owner) {
  auto state = std::make_shared<PrefixState>();
  state->point = complete_ ? point_ : reached_;
  if (state->point == LayerPoint()) return nullptr;
  state->complete = complete_;
  state->owner = owner;
  if (rows_ != kAllRows) tokens.resize(static_cast<size_t>(rows_));
  state->tokens = std::move(tokens);
  captured_.resize(static_cast<size_t>(LayersWithKeys(state->point)));
  state->layers = std::move(captured_);
  if (state->point.layer < layers_) state->hidden = std::move(hidden_);
  COPPICE_CHECK(state->hidden.rows() == (state->point.layer < layers_ ? state->rows() : 0));
  state->has_states = first_state_ && *first_state_ < state->layers.size();
  for (const PrefixState::Layer& layer : state->layers)
    COPPICE_CHECK(layer.keys.cols() == 0 || layer.keys.rows() == state->rows());
  for (auto& [rows, layers] : checkpoints_) {
    if (!state->has_states) break;
    layers.resize(state->layers.size());  // a cancelled run has added states of its last layer, which it ends
    state->checkpoints.push_back(
        std::make_shared<const PrefixState::Checkpoint>(PrefixState::Checkpoint{rows, std::move(layers)}));
  }
  state->checkpoints.insert(state->checkpoints.begin(), inherited_.begin(), inherited_.end());
  return state;
}

}  // namespace coppice
