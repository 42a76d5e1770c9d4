// MInference: dynamic sparse attention in prefill. No training; decode is dense, the cache stays whole.
//
// A query head has one of three patterns. vertical_slash, with A the softmax weights of the last 64 queries:
//   v_j = sum_i A[i, j]           the head reads the `vertical` best columns j          (1)
//   s_d = sum_i A[i, i - d]       and the `slash` best diagonals d                      (2)
// The first 30 columns and the nearest 100 diagonals are always among them. Columns are single keys. A
// diagonal crosses at most two key blocks of 64 per query block of 64; these blocks are read completely.
//
// block_sparse: with q and k averaged over blocks of 64, query block b reads the `blocks` key blocks with
//   the largest softmax_j(scale q_b . k_j), j <= b                                      (3)
// the first block and its own always among them.
//
// a_shape: the first `first` keys and the `nearest` keys up to the query's own, in whole blocks of 64  (4)
//
// The published method finds a pattern and its sizes for every head offline, within the FLOPs of an A-shape
// of 1024 + 4096 tokens. `coppice tune` does the same (eval/tune/head_search.h), and `heads` names its file.
// Without a file all heads have one setting. The default is the largest common setting of the published
// configurations of Llama-3.1-8B and Qwen2.5-7B, (1000, 6096). Their second version has (512, 2048) for every
// head: vertical=512,slash=2048.
//
// The estimate costs 2 * 64 N H c FLOPs per layer and the memory of one head's [64, N] weights. It pays off
// if there are far fewer lines than N: with the default sizes from about 32k tokens on.
#include "policies/methods/minference.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

namespace coppice {

HeadPattern MInferenceConfig::Of(int layer, int head) const {
  if (heads) return heads->heads[static_cast<size_t>(layer)][static_cast<size_t>(head)];
  switch (pattern) {
    case PatternKind::kVerticalSlash:
      return {pattern, vertical, slash};
    case PatternKind::kBlockSparse:
      return {pattern, blocks, 0};
    case PatternKind::kAShape:
      break;
  }
  return {pattern, first, nearest};
}

bool MInferencePolicy::ChoosesPattern(Phase phase, int /*layer*/) const { return phase == Phase::kPrefill; }

SparsePattern MInferencePolicy::Pattern(const AttentionScene& scene, Backend& be) {
  const AttentionInput& in = scene.in;
  const BlockGrid grid = GridOf(in, HeadPattern::kBlock);
  if (StaysDense(scene, grid)) return {};
  SparsePattern pattern = PatternOn(grid, in.shape.heads);
  const int group = in.shape.heads / in.shape.kv_heads;
  Tensor mean_queries;  // of all heads
  MeanKeys mean_keys;
  int mean_keys_of = -1;  // kv head
  bool sparse = false;
  for (int h = 0; h < in.shape.heads; ++h) {
    const HeadPattern of = config_.Of(scene.layer, h);
    SparsePattern::Head& chosen = pattern.heads[static_cast<size_t>(h)];
    if (grid.keys <= of.Reach()) {
      chosen = DenseHead(grid);
      continue;
    }
    sparse = true;
    scene.Pause();
    const AttentionInput head = OneHead(in, h);
    if (of.kind == PatternKind::kVerticalSlash) {
      chosen = VerticalSlashHead(MassOfLines(head, HeadPattern::kLastQueries, be), of.first, of.second, grid,
                                 be);  // (1), (2)
    } else if (of.kind == PatternKind::kBlockSparse) {
      if (std::exchange(mean_keys_of, h / group) != h / group) mean_keys = MeanKeysOf(head, grid.block, be);
      if (mean_queries.rows() == 0) mean_queries = MeanRows(in.queries, grid.block, be);
      const TensorView queries = mean_queries.view().Cols(h * in.shape.head_dim, in.shape.head_dim);
      chosen =
          BlockSparseHead(PooledMap(head, queries, mean_keys, grid.block, be), of.first, grid, be);  // (3)
    } else {
      chosen = AShapeHead(of.first, of.second, grid);  // (4)
    }
  }
  return sparse ? std::move(pattern) : SparsePattern{};
}

namespace {

Keys MInferenceKeys(MInferenceConfig& c, const ModelShape& /*shape*/) {
  return {
      {"pattern", &c.pattern, "vertical_slash block_sparse a_shape",
       "columns and diagonals; the best blocks of averaged queries and keys; or the first and the nearest "
       "keys; "
       "for all heads"},
      {"vertical", &c.vertical, HeadPattern::kSinkColumns, kManyTokens,
       "columns per head, always with the first 30"},
      {"slash", &c.slash, HeadPattern::kLocalDiagonals, kManyTokens,
       "diagonals per head, always with the nearest 100"},
      {"blocks", &c.blocks, 2, kManyTokens, "block_sparse: key blocks of 64 per query block"},
      {"first", &c.first, 1, kManyTokens, "a_shape: keys at the prompt's start"},
      {"nearest", &c.nearest, 1, kManyTokens, "a_shape: keys up to the query's own"},
      Keys::OptionalFile("heads", &c.file, "a file that coppice tune writes",
                         "a pattern for each head, in place of the one of `pattern`"),
      MinKey(c.minimum),
  };
}

MethodInstance MakeMInference(const MethodSpec& spec, const MethodContext& context) {
  MInferenceConfig c;
  Keys keys = MInferenceKeys(c, context.shape);
  keys.Read(spec);
  if (!c.file.empty()) c.heads = ReadHeadPatterns(c.file, context.shape);
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
      "sparse prefill attention: a few columns and diagonals per head, estimated with the last 64 queries, "
      "or a pattern found for each head by tune",
      "MInference 1.0: accelerating pre-filling for long-context LLMs via dynamic sparse attention, NeurIPS "
      "2024, arXiv 2407.02490",
      kSparsePrefill,
      HelpOf(&MInferenceKeys),
      &MakeMInference};
}

}  // namespace coppice
