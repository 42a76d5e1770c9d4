#include "eval/tune/head_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "eval/watch_prefill.h"

namespace coppice {

namespace {

// Shares of the budget that a vertical_slash candidate spends on columns. The published search space ranges
// from few columns with many diagonals to the opposite.
constexpr std::array kColumnShares = {1.0 / 32, 1.0 / 8, 1.0 / 3, 2.0 / 3};

HeadPattern AShapeOf(int64_t budget) {
  const int64_t first = std::max<int64_t>(1, budget / 5);
  return {PatternKind::kAShape, first, std::max<int64_t>(1, budget - first)};
}

// The candidates of one head, with the estimates that their sizes share.
class HeadTrial {
 public:
  HeadTrial(const AttentionInput& head, Backend& be)
      : head_(head), be_(be), grid_(GridOf(head, HeadPattern::kBlock)), dense_(Run({})) {
    AttentionInput scored = head;
    scored.values = {};
    mass_ = MassOfLines(scored, HeadPattern::kLastQueries, be);
    const Tensor queries = MeanRows(scored.queries, grid_.block, be);
    map_ = PooledMap(scored, queries.view(), MeanKeysOf(scored, grid_.block, be), grid_.block, be);
  }

  double CostOf(const HeadPattern& p) const {
    const double pairs = PatternDensity(PatternOf(p), grid_.queries, grid_.keys);
    // The estimate of lines: scores of the last queries against all keys, half of an attention.
    const bool lines = p.kind == PatternKind::kVerticalSlash;
    return pairs +
           (lines ? static_cast<double>(HeadPattern::kLastQueries) / static_cast<double>(grid_.keys) : 0);
  }

  // The largest `size` of the pattern within `cost`, for sizes from the least to `most`; false if none is.
  bool Fit(HeadPattern& p, int64_t HeadPattern::*size, int64_t most, double cost) const {
    int64_t low = LeastPattern(p.kind).*size;
    int64_t high = std::max(low, most);
    p.*size = low;
    if (CostOf(p) > cost) return false;
    while (low < high) {
      const int64_t middle = low + (high - low + 1) / 2;
      p.*size = middle;
      if (CostOf(p) <= cost) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    p.*size = low;
    return true;
  }

  HeadCandidate Try(const HeadPattern& p) const {
    const Tensor out = Run(PatternOf(p));
    double error = 0;
    double size = 0;
    // Rows behind it are dense in every pattern.
    const int64_t rows = std::min(grid_.queries, grid_.first_dense() * grid_.block);
    for (int64_t i = 0; i < rows; ++i) {
      const std::span<const float> got = out.view().Row<float>(i);
      const std::span<const float> want = dense_.view().Row<float>(i);
      for (size_t c = 0; c < got.size(); ++c) {
        const double difference = double{got[c]} - want[c];
        error += difference * difference;
        size += double{want[c]} * want[c];
      }
    }
    return {p, CostOf(p), size > 0 ? error / size : 0};
  }

 private:
  SparsePattern PatternOf(const HeadPattern& p) const {
    SparsePattern pattern = PatternOn(grid_, 1);
    SparsePattern::Head& head = pattern.heads.front();
    if (p.kind == PatternKind::kVerticalSlash) {
      head = VerticalSlashHead(mass_, p.first, p.second, grid_, be_);
    } else if (p.kind == PatternKind::kBlockSparse) {
      head = BlockSparseHead(map_.Clone(), p.first, grid_, be_);
    } else {
      head = AShapeHead(p.first, p.second, grid_);
    }
    return pattern;
  }
  Tensor Run(const SparsePattern& pattern) const {
    Tensor out(DType::kF32, head_.queries.rows, head_.queries.cols);
    if (pattern.empty()) {
      be_.Attention(head_, out.mutable_view());
    } else {
      be_.SparseAttention(head_, pattern, 0, out.mutable_view());
    }
    return out;
  }

  const AttentionInput& head_;
  Backend& be_;
  BlockGrid grid_;
  Tensor dense_;
  LineMass mass_;
  Tensor map_;
};

// The dense policy, which looks at every layer's attention.
class HeadSearch final : public TokenPolicy {
 public:
  // `layers`: those that are searched.
  HeadSearch(const HeadSearchOptions& options, int layers) : options_(options), layers_(layers) {}

  bool ChoosesPattern(Phase phase, int) const override { return phase == Phase::kPrefill; }
  SparsePattern Pattern(const AttentionScene& scene, Backend& be) override {
    const AttentionInput& in = scene.in;
    const int group = in.shape.heads / in.shape.kv_heads;
    std::vector<HeadPattern>& layer = result.patterns.heads.emplace_back();
    for (int h = 0; h < in.shape.heads; ++h) {
      scene.Pause();
      AttentionInput head = OneHead(in, h);
      head.values = in.values.Cols(h / group * in.shape.head_dim, in.shape.head_dim);
      const std::vector<HeadCandidate> candidates = CandidatesOf(head, options_.budget, be);
      if (candidates.empty()) {
        throw Error(
            "an A-shape of {} tokens covers the reference prompt of {}; give a longer one or a smaller "
            "budget",
            options_.budget, in.keys.rows);
      }
      layer.push_back(Choose(candidates));
      if (options_.progress) {
        const double done = scene.layer + static_cast<double>(h + 1) / in.shape.heads;
        options_.progress(done / layers_);
      }
    }
    return {};
  }

  HeadSearchResult result;

 private:
  HeadPattern Choose(const std::vector<HeadCandidate>& candidates) {
    const auto better = [](const HeadCandidate& a, const HeadCandidate& b) { return a.error < b.error; };
    const HeadCandidate& best = *std::min_element(candidates.begin(), candidates.end(), better);
    for (size_t kind = 0; kind < std::size(result.error_of); ++kind) {
      double least = std::numeric_limits<double>::infinity();
      for (const HeadCandidate& c : candidates) {
        if (c.pattern.kind == static_cast<PatternKind>(kind)) least = std::min(least, c.error);
      }
      result.error_of[kind] += least;
    }
    result.error += best.error;
    result.density += best.cost;
    return best.pattern;
  }

  const HeadSearchOptions& options_;
  int layers_;
};

}  // namespace

std::vector<HeadCandidate> CandidatesOf(const AttentionInput& head, int64_t budget, Backend& be) {
  const HeadPattern a_shape = AShapeOf(budget);
  const BlockGrid grid = GridOf(head, HeadPattern::kBlock);
  if (grid.keys <= a_shape.Reach() || grid.first_dense() == 0) return {};
  const HeadTrial trial(head, be);
  std::vector<HeadCandidate> candidates = {trial.Try(a_shape)};
  const double cost = candidates.front().cost;
  for (const double share : kColumnShares) {
    HeadPattern lines = LeastPattern(PatternKind::kVerticalSlash);
    lines.first =
        std::max(lines.first, static_cast<int64_t>(std::llround(share * static_cast<double>(budget))));
    if (trial.Fit(lines, &HeadPattern::second, grid.keys - lines.first - 1, cost))
      candidates.push_back(trial.Try(lines));
  }
  HeadPattern blocks = LeastPattern(PatternKind::kBlockSparse);
  if (trial.Fit(blocks, &HeadPattern::first, grid.key_blocks() - 1, cost))
    candidates.push_back(trial.Try(blocks));
  return candidates;
}

HeadSearchResult SearchHeadPatterns(const Engine& engine, std::span<const int32_t> tokens,
                                    const HeadSearchOptions& options) {
  const ModelShape& shape = engine.model().config().shape;
  if (shape.layer_count() < 2)
    throw Error("the model has one layer, of which a prefill computes a single row: no head needs a pattern");
  if (tokens.empty()) throw Error("the reference prompt has no tokens");
  const auto most = static_cast<size_t>(engine.context());
  std::vector<int32_t> prompt(tokens.begin(), tokens.end());
  if (prompt.size() > most)
    prompt.erase(prompt.begin() + 1, prompt.begin() + 1 + static_cast<std::ptrdiff_t>(prompt.size() - most));
  HeadSearch search(options, shape.layer_count() - 1);
  HeadSearchResult& result = search.result;
  result.patterns.tokens = std::ssize(prompt);
  result.patterns.budget = options.budget;
  WatchPrefill(engine, prompt, search, options.cancelled);
  result.patterns.heads.push_back(result.patterns.heads.back());
  double heads = 0;  // of all layers but the last
  for (int l = 0; l + 1 < shape.layer_count(); ++l) heads += shape.layer(l).heads;
  result.error /= heads;
  result.density /= heads;
  for (double& error : result.error_of) error /= heads;
  return std::move(result);
}

}  // namespace coppice
