// UniPrefill: drops blocks of hidden states for good, as many as the attention allows. No training.
//
// The n rows of the stream are split into blocks of B. After the attention of a deciding layer
//   s_i = sum_h sum_{q in last w} A[h,q,i]                                   (1)
//   b_j = sum of s_i over the rows i of block j                              (2) the last may be shorter
//   S   = smallest set of blocks with sum_{j in S} b_j >= p sum_j b_j        (3) ties: the earlier block
// The rows outside S leave the stream before this layer's FFN, except the first `sink` positions and the
// blocks that hold the last w rows. Nothing is chosen among sink + w rows or fewer.
//
// The authors' code takes means in (1) and (2) and pads the last block with zeros: the same order and shares.
// Where its two versions and this one differ:
//   - (3) includes the block that crosses p, as the Triton kernel does. The PyTorch version leaves it out,
//     and then keeps less than p. The kernel breaks ties in favour of the later block; every method here
//     favours the earlier.
//   - The code always keeps ceil(w / B) last blocks. If the last one is partial, they hold fewer than w rows,
//     and the next deciding layer would take queries from rows that need not belong to the prompt's end. Here
//     every block with one of the last w rows stays.
//
// Prefill only: each layer's cache keeps the rows that reached it. Cost of (1): 2 w n H c FLOPs per deciding
// layer.
//
// Source: UniPrefill: universal long-context prefill acceleration via block-wise dynamic sparsification,
// arXiv 2605.06221, and its repository, which has these defaults.
#include "policies/methods/uniprefill.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "policies/presets.h"
#include "policies/stages.h"

namespace coppice {

bool UniPrefillPolicy::Decides(int layer) const {
  return config_.p < 1 && StageOf(config_.layers, layer) >= 0;
}

LayerPoint UniPrefillPolicy::FirstChoice() const {
  if (config_.p >= 1 || config_.layers.empty()) return kNoPoint;
  return {config_.layers.front(), true};
}

Needs UniPrefillPolicy::NeedsAt(Phase phase, int layer) const {
  if (phase != Phase::kPrefill || !Decides(layer)) return {};
  return {.masses = {Mass()}, .unit_scores = {}};  // (1)
}

TokenSet UniPrefillPolicy::AfterAttention(const Observation& seen, Backend& be) {
  const int64_t rows = seen.rows();
  if (!Decides(seen.layer) || rows <= config_.sink + config_.last) return TokenSet::All(rows);
  const std::span<const float> mass = seen.AttentionMass(Mass()).Row<float>(0);
  const int64_t blocks = (rows + config_.block - 1) / config_.block;
  std::vector<float> sums;
  for (int64_t begin = 0; begin < rows; begin += config_.block) {
    double sum = 0;
    for (int64_t i = begin; i < std::min<int64_t>(begin + config_.block, rows); ++i) {
      const float s = mass[static_cast<size_t>(i)];
      if (!std::isnan(s)) sum += s;
    }
    sums.push_back(static_cast<float>(sum));  // (2)
  }
  const TokenSet best =
      be.SmallestSetWithMass(TensorView(sums.data(), DType::kF32, 1, blocks), config_.p);  // (3)
  std::vector<int32_t> kept;
  for (const int32_t j : best.ToRows()) {
    const int64_t begin = int64_t{j} * config_.block;
    for (int64_t i = begin; i < std::min<int64_t>(begin + config_.block, rows); ++i)
      kept.push_back(static_cast<int32_t>(i));
  }
  const int64_t tail =
      (rows - config_.last) / config_.block * config_.block;  // where the last rows' blocks begin
  return TokenSet::Of(std::move(kept), rows)
      .UnionFirst(RowsBelow(seen.positions, config_.sink))
      .UnionLast(rows - tail);
}

namespace {

Keys UniPrefillKeys(UniPrefillConfig& c, const ModelShape& shape) {
  c.layers = UniPrefillLayers(shape);
  return {
      LayersKey(c.layers, shape, "blocks are dropped after the attention of these layers, before their FFN",
                "by model: (8, 12, ..., 28) L / 32 - 1"),
      {"p", &c.p, kAboveZero, 1, "share of the attention mass that the kept blocks hold; 1 keeps everything"},
      {"block", &c.block, 1, 4096, "tokens per block"},
      {"sink", &c.sink, 0, kManyTokens, "positions below this are always kept"},
      {"last", &c.last, 1, 4096, "this many last tokens score the others; their blocks are always kept"},
      MinKey(c.minimum),
  };
}

MethodInstance MakeUniPrefill(const MethodSpec& spec, const MethodContext& context) {
  UniPrefillConfig c;
  Keys keys = UniPrefillKeys(c, context.shape);
  keys.Read(spec);
  return MakeInstance<UniPrefillPolicy>(
      keys,
      {StageReason(c.layers, context.shape), LengthReason(context, c.minimum),
       NothingToDrop(context, int64_t{c.sink} + c.last), WindowReason(context)},
      c);
}

}  // namespace

MethodInfo UniPrefillMethod() {
  return {
      "uniprefill",
      "drop the blocks that the end of the prompt attends to least, as many as the attention allows",
      "UniPrefill: universal long-context prefill acceleration via block-wise dynamic sparsification, arXiv "
      "2605.06221",
      kDropsRows,
      HelpOf(&UniPrefillKeys),
      &MakeUniPrefill};
}

}  // namespace coppice
