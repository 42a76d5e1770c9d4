// MInference: dynamic sparse attention in prefill. No training; decode is dense, the cache stays whole.
//
// vertical_slash, for each query head, with A the softmax weights of the last 64 queries:
//   v_j = sum_i A[i, j]           the head reads the `vertical` best columns j          (1)
//   s_d = sum_i A[i, i - d]       and the `slash` best diagonals d                      (2)
// The first 30 columns and the nearest 100 diagonals are always among them. Columns are single keys. A
// diagonal crosses at most two key blocks of 64 per query block of 64; these blocks are read completely.
//
// block_sparse: with q and k averaged over blocks of 64, query block b reads the `blocks` key blocks with
//   the largest softmax_j(scale q_b . k_j), j <= b                                      (3)
// the first block and its own always among them.
//
// The published method finds a pattern and its sizes for every head offline. This one has one setting for all
// heads; the defaults are the largest common setting of the published configurations of Llama-3.1-8B and
// Qwen2.5-7B, (1000, 6096). Their second version has (512, 2048) for every head: vertical=512,slash=2048.
//
// The estimate costs 2 * 64 N H c FLOPs per layer and the memory of one head's [64, N] weights. It pays off
// if there are far fewer lines than N: with the default sizes from about 32k tokens on.
#include "policies/methods/minference.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

namespace coppice {

namespace {

constexpr float kAlways = std::numeric_limits<float>::infinity();

// The block diagonals (key block - query block) that these diagonals cross, each once.
std::vector<int64_t> BlockDiagonalsOf(const BlockGrid& grid, const std::vector<int32_t>& diagonals) {
  std::vector<int64_t> crossed;
  for (const int32_t d : diagonals) {
    const BlockGrid::Place place = grid.PlaceOf(d);
    crossed.push_back(place.first);
    if (place.second_share > 0) crossed.push_back(place.first + 1);
  }
  std::sort(crossed.begin(), crossed.end());
  crossed.erase(std::unique(crossed.begin(), crossed.end()), crossed.end());
  return crossed;
}

}  // namespace

bool MInferencePolicy::ChoosesPattern(Phase phase, int /*layer*/) const { return phase == Phase::kPrefill; }

SparsePattern MInferencePolicy::Pattern(const AttentionScene& scene, Backend& be) {
  const AttentionInput& in = scene.in;
  const BlockGrid grid = GridOf(in, MInferenceConfig::kBlock);
  if (StaysDense(scene, grid) || grid.keys <= config_.Reach()) return {};
  SparsePattern pattern = PatternOn(grid, in.shape.heads);
  const int group = in.shape.heads / in.shape.kv_heads;
  MeanKeys mean_keys;
  for (int h = 0; h < in.shape.heads; ++h) {
    scene.Pause();
    const AttentionInput head = OneHead(in, h);
    if (config_.block_sparse && h % group == 0) mean_keys = MeanKeysOf(head, grid.block, be);
    pattern.heads[static_cast<size_t>(h)] =
        config_.block_sparse ? BlockSparse(head, grid, mean_keys, be) : VerticalSlash(head, grid, be);
  }
  return pattern;
}

SparsePattern::Head MInferencePolicy::VerticalSlash(const AttentionInput& head, const BlockGrid& grid,
                                                    Backend& be) const {
  LineMass mass = MassOfLines(head, MInferenceConfig::kLastQueries, be);
  // The prompt is longer than Reach(), so both vectors are long enough.
  std::fill_n(mass.columns.begin(), MInferenceConfig::kSinkColumns, kAlways);
  std::fill_n(mass.diagonals.begin(), MInferenceConfig::kLocalDiagonals, kAlways);
  SparsePattern::Head chosen;
  chosen.columns = be.TopK(RowView(mass.columns), config_.vertical).ToRows();                       // (1)
  const std::vector<int32_t> diagonals = be.TopK(RowView(mass.diagonals), config_.slash).ToRows();  // (2)
  const std::vector<int64_t> crossed = BlockDiagonalsOf(grid, diagonals);
  std::vector<uint8_t> marks(static_cast<size_t>(grid.key_blocks()));
  for (int64_t b = 0; b < grid.query_blocks(); ++b) {
    std::fill(marks.begin(), marks.end(), uint8_t{0});
    for (const int64_t diagonal : crossed) {
      const int64_t j = b + diagonal;
      if (j >= 0 && j < grid.key_blocks()) marks[static_cast<size_t>(j)] = 1;
    }
    chosen.key_blocks.push_back(KeyBlocksOf(grid, b, marks));
  }
  return chosen;
}

SparsePattern::Head MInferencePolicy::BlockSparse(const AttentionInput& head, const BlockGrid& grid,
                                                  const MeanKeys& mean_keys, Backend& be) const {
  Tensor map = PooledMap(head, mean_keys, grid.block, be);
  SparsePattern::Head chosen;
  std::vector<uint8_t> marks(static_cast<size_t>(grid.key_blocks()));
  for (int64_t b = 0; b < grid.query_blocks(); ++b) {
    const std::span<float> row =
        map.mutable_view().Row<float>(b).first(static_cast<size_t>(grid.LastDiagonal(b) + 1));
    row.front() = kAlways;
    std::fill(row.begin() + grid.FirstDiagonal(b), row.end(), kAlways);
    std::fill(marks.begin(), marks.end(), uint8_t{0});
    for (const int32_t j : be.TopK(RowView(row), config_.blocks).ToRows()) marks[static_cast<size_t>(j)] = 1;
    chosen.key_blocks.push_back(KeyBlocksOf(grid, b, marks));  // (3)
  }
  return chosen;
}

namespace {

Keys MInferenceKeys(MInferenceConfig& c, const ModelShape& /*shape*/) {
  return {
      {"pattern", &c.block_sparse, "vertical_slash block_sparse",
       "columns and diagonals, or the best blocks of averaged queries and keys; for all heads"},
      {"vertical", &c.vertical, MInferenceConfig::kSinkColumns, kManyTokens,
       "columns per head, always with the first 30"},
      {"slash", &c.slash, MInferenceConfig::kLocalDiagonals, kManyTokens,
       "diagonals per head, always with the nearest 100"},
      {"blocks", &c.blocks, 2, kManyTokens, "block_sparse: key blocks of 64 per query block"},
      MinKey(c.minimum),
  };
}

MethodInstance MakeMInference(const MethodSpec& spec, const MethodContext& context) {
  MInferenceConfig c;
  Keys keys = MInferenceKeys(c, context.shape);
  keys.Read(spec);
  std::string fits;
  if (context.tokens <= c.Reach()) {
    fits = fmt::format("its pattern of {} tokens covers {} prompt tokens", c.Reach(), context.tokens);
  }
  return MakeInstance<MInferencePolicy>(keys, {LengthReason(context, c.minimum), fits, WindowReason(context)},
                                        c);
}

}  // namespace

MethodInfo MInferenceMethod() {
  return {
      "minference",
      "sparse prefill attention: a few columns and diagonals per head, estimated with the last 64 queries",
      "MInference 1.0: accelerating pre-filling for long-context LLMs via dynamic sparse attention, NeurIPS "
      "2024, arXiv 2407.02490",
      kSparsePrefill,
      HelpOf(&MInferenceKeys),
      &MakeMInference};
}

}  // namespace coppice
