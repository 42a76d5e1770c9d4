// FlexPrefill: sparse attention in prefill with a budget per head. No training; decode is dense, the cache
// stays whole.
//
// For each query head, A the softmax weights of the last `block` queries, in blocks of `block`:
//   v_j = mean_i A[i, j]    s_d = mean_i A[i, i - d]      the mass of columns and of diagonals      (1)
//   p = softmax_j(scale mean_i(q_i) . k_j)                the same by blocks, from mean keys k_j    (2)
//   query-aware  <=>  sqrt(JSD(p, v by blocks)) < tau     the estimate is good                      (3)
// Otherwise the head reads the best column blocks and the best block diagonals, of each
//   |{best single columns (diagonals) that hold gamma of the mass}| / block + 1                     (4)
// and min_budget / block at least. A query-aware head reads min_budget / block of each, and the blocks (b, j)
// that hold gamma of the map softmax_j(scale q_b . k_j) of all mean queries and keys:                (5)
// in order of mass over the whole map, as long as their sum does not exceed gamma times the map's. The first
// column block and the diagonal are always read.
//
// Two differences from the published code. A diagonal between two block diagonals counts for both, by the
// share of its pairs in each; the code counts it for the nearer one, which may hold almost none of them. A
// block without mass adds 0 to JSD; in the code it makes JSD NaN, and the head is then not query-aware.
//
// (1) costs 2 block N H c per layer, (5) (N / block)^2 H c; the memory is one head's [block, N] weights.
#include "policies/methods/flexprefill.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"

namespace coppice {

namespace {

constexpr float kCertain = std::numeric_limits<float>::infinity();

// Shares of the mass by block: of columns [key blocks], and of block diagonals from `nearest` downwards.
struct BlockMass {
  std::vector<float> columns;
  std::vector<float> diagonals;
  int64_t nearest = 0;  // the block diagonal of diagonals[0]
};

BlockMass MassOfBlocks(const BlockGrid& grid, const LineMass& lines) {
  BlockMass mass;
  mass.columns.assign(static_cast<size_t>(grid.key_blocks()), 0.0f);
  for (size_t j = 0; j < lines.columns.size(); ++j)
    mass.columns[j / static_cast<size_t>(grid.block)] += lines.columns[j];
  const BlockGrid::Place nearest = grid.PlaceOf(0);
  mass.nearest = nearest.first + (nearest.second_share > 0 ? 1 : 0);
  mass.diagonals.assign(static_cast<size_t>(mass.nearest - grid.PlaceOf(grid.keys - 1).first + 1), 0.0f);
  for (size_t d = 0; d < lines.diagonals.size(); ++d) {
    const BlockGrid::Place place = grid.PlaceOf(static_cast<int64_t>(d));
    const auto second = static_cast<float>(place.second_share);
    const auto at = static_cast<size_t>(mass.nearest - place.first);
    mass.diagonals[at] += (1 - second) * lines.diagonals[d];
    if (second > 0) mass.diagonals[at - 1] += second * lines.diagonals[d];
  }
  return mass;
}

// (2): how a mean of the last queries spreads its mass over the blocks.
std::vector<float> EstimateOf(const AttentionInput& head, const MeanKeys& keys, int block, Backend& be) {
  const int64_t m = std::min<int64_t>(block, head.queries.rows);
  const Tensor query = MeanRows(head.queries.Rows(head.queries.rows - m, m), block, be);
  AttentionInput pooled = head;
  pooled.queries = query.view();
  pooled.keys = keys.keys.view();
  pooled.query_positions = head.query_positions.last(1);  // sees every block
  pooled.key_positions = keys.positions;
  std::vector<float> estimate(keys.positions.size());
  be.AttentionWeights(pooled, {estimate.data(), DType::kF32, 1, keys.keys.rows()});
  return estimate;
}

// (5): the cells of a map in order of mass, while their sum does not exceed gamma of the whole. A NaN counts
// as 0 and ranks last.
std::vector<int32_t> CellsWithin(std::span<const float> map, double gamma, Backend& be) {
  std::vector<int32_t> cells = be.SmallestSetWithMass(RowView(map), gamma).ToRows();
  const auto mass = [&](int32_t cell) {
    const float m = map[static_cast<size_t>(cell)];
    return std::isnan(m) ? 0.0 : double{m};
  };
  double total = 0;
  double sum = 0;
  for (size_t cell = 0; cell < map.size(); ++cell) total += mass(static_cast<int32_t>(cell));
  for (const int32_t cell : cells) sum += mass(cell);
  if (sum <= gamma * total) return cells;
  // Finds the cell of the lowest rank, whose mass exceeded the limit: the smallest cell, of equal ones the
  // last.
  auto last = cells.begin();
  for (auto it = cells.begin(); it != cells.end(); ++it) {
    if (mass(*it) <= mass(*last)) last = it;
  }
  cells.erase(last);
  return cells;
}

// Marks by query block and key block: [query blocks][key blocks].
class Marks {
 public:
  explicit Marks(const BlockGrid& grid)
      : grid_(grid), marks_(static_cast<size_t>(grid.query_blocks() * grid.key_blocks())) {}

  void Cell(int64_t cell) { marks_[static_cast<size_t>(cell)] = 1; }
  void Column(int64_t j) {
    for (int64_t b = 0; b < grid_.query_blocks(); ++b) Cell(b * grid_.key_blocks() + j);
  }
  void Diagonal(int64_t diagonal) {
    for (int64_t b = 0; b < grid_.query_blocks(); ++b) {
      const int64_t j = b + diagonal;
      if (j >= 0 && j < grid_.key_blocks()) Cell(b * grid_.key_blocks() + j);
    }
  }
  SparsePattern::Head ToHead() const {
    SparsePattern::Head head;
    const auto width = static_cast<size_t>(grid_.key_blocks());
    for (int64_t b = 0; b < grid_.query_blocks(); ++b)
      head.key_blocks.push_back(
          KeyBlocksOf(grid_, b, std::span(marks_).subspan(static_cast<size_t>(b) * width, width)));
    return head;
  }

 private:
  BlockGrid grid_;
  std::vector<uint8_t> marks_;
};

}  // namespace

double JensenShannonDistance(std::span<const float> p, std::span<const float> q) {
  COPPICE_CHECK(p.size() == q.size());
  double divergence = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double mean = 0.5 * (double{p[i]} + double{q[i]});
    for (const double x : {double{p[i]}, double{q[i]}})
      divergence += x == 0 ? 0 : 0.5 * x * std::log(x / mean);
  }
  // Rounding may give equal distributions a value below 0. A NaN stays a NaN.
  return std::sqrt(divergence < 0 ? 0 : divergence);
}

bool FlexPrefillPolicy::ChoosesPattern(Phase phase, int /*layer*/) const {
  return phase == Phase::kPrefill && config_.gamma < 1;
}

SparsePattern FlexPrefillPolicy::Pattern(const AttentionScene& scene, Backend& be) {
  const AttentionInput& in = scene.in;
  const BlockGrid grid = GridOf(in, config_.block);
  if (StaysDense(scene, grid) || grid.queries <= std::max<int64_t>(2 * config_.block, config_.min_budget))
    return {};
  if (config_.gamma >= 1) return {};
  SparsePattern pattern = PatternOn(grid, in.shape.heads);
  const int group = in.shape.heads / in.shape.kv_heads;
  MeanKeys mean_keys;
  for (int h = 0; h < in.shape.heads; ++h) {
    scene.Pause();
    const AttentionInput head = OneHead(in, h);
    if (h % group == 0) mean_keys = MeanKeysOf(head, grid.block, be);
    pattern.heads[static_cast<size_t>(h)] = ChooseHead(head, grid, mean_keys, be);
  }
  return pattern;
}

SparsePattern::Head FlexPrefillPolicy::ChooseHead(const AttentionInput& head, const BlockGrid& grid,
                                                  const MeanKeys& mean_keys, Backend& be) const {
  const LineMass lines = MassOfLines(head, config_.block, be);  // (1)
  BlockMass mass = MassOfBlocks(grid, lines);
  const std::vector<float> estimate = EstimateOf(head, mean_keys, config_.block, be);    // (2)
  const bool query_aware = JensenShannonDistance(estimate, mass.columns) < config_.tau;  // (3)
  const auto budget = [&](const std::vector<float>& of_lines) {                          // (4)
    if (query_aware) return config_.MinBlocks();
    const int64_t best = be.SmallestSetWithMass(RowView(of_lines), config_.gamma).size();
    return std::max(config_.MinBlocks(), best / config_.block + 1);
  };
  mass.columns.front() = kCertain;
  mass.diagonals.front() = kCertain;
  Marks marks(grid);
  for (const int32_t j : be.TopK(RowView(mass.columns), budget(lines.columns)).ToRows()) marks.Column(j);
  for (const int32_t d : be.TopK(RowView(mass.diagonals), budget(lines.diagonals)).ToRows())
    marks.Diagonal(mass.nearest - d);
  if (query_aware) {
    const Tensor mean_queries = MeanRows(head.queries, grid.block, be);
    const Tensor map = PooledMap(head, mean_queries.view(), mean_keys, grid.block, be);
    const std::span<const float> cells(map.view().Row<float>(0).data(),
                                       static_cast<size_t>(map.rows() * map.cols()));
    for (const int32_t cell : CellsWithin(cells, config_.gamma, be)) marks.Cell(cell);  // (5)
  }
  return marks.ToHead();
}

namespace {

Keys FlexPrefillKeys(FlexPrefillConfig& c, const ModelShape& /*shape*/) {
  return {
      {"gamma", &c.gamma, kAboveZero, 1, "share of the attention mass to cover; 1 is dense"},
      {"tau", &c.tau, 0, 1, "a head whose estimate is closer to the truth than this chooses block by block"},
      {"min_budget", &c.min_budget, 1, kManyTokens,
       "tokens of columns and of diagonals that each head reads at least"},
      {"block", &c.block, 16, 1024, "queries and keys per block"},
      MinKey(c.minimum),
  };
}

MethodInstance MakeFlexPrefill(const MethodSpec& spec, const MethodContext& context) {
  FlexPrefillConfig c;
  Keys keys = FlexPrefillKeys(c, context.shape);
  keys.Read(spec);
  return MakeInstance<FlexPrefillPolicy>(keys, {LengthReason(context, c.minimum), WindowReason(context)}, c);
}

}  // namespace

MethodInfo FlexPrefillMethod() {
  return {
      "flexprefill",
      "sparse prefill attention: the blocks of each head that hold most of its mass",
      "FlexPrefill: a context-aware sparse attention mechanism for efficient long-sequence inference, ICLR "
      "2025, arXiv 2502.20766",
      kSparsePrefill,
      HelpOf(&FlexPrefillKeys),
      &MakeFlexPrefill};
}

}  // namespace coppice
