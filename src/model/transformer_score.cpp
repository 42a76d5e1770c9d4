// Computes the logits of every position of a text, at most one tile of them at once.
#include <utility>

#include "model/log_probs.h"
#include "model/transformer.h"

namespace coppice {

namespace {

// Rows of logits that exist at once: 64 MiB for a vocabulary of 128k tokens.
constexpr int64_t kScoredRows = 128;

}  // namespace

void Transformer::PrefillScored(std::span<const int32_t> tokens, const Pass& pass, Tensor& logits,
                                const LogitsVisitor& visit) const {
  TokenPolicy dense;
  const Pass run{dense, pass.sequence, pass.workspace, pass.backend, pass.control};
  Stream x = RunLayers(tokens, run, false);
  ApplyNorm(weights_->head_norm, x.hidden(), run.backend);
  const TensorView normed = x.hidden();
  if (visit && x.rows() > 1) VisitLogits(normed.Rows(0, x.rows() - 1), run, visit);
  Head(normed.Rows(x.rows() - 1, 1), run, logits);
}

TextScore Transformer::Score(std::span<const int32_t> tokens, Workspace& ws, Backend& be,
                             const RunControl& control) const {
  const int64_t count = std::ssize(tokens);
  TextScore score;
  score.log_probabilities.assign(tokens.size(), 0);
  if (count < 2) return score;
  TokenPolicy dense;
  SequenceState sequence = NewSequence(count, count, be);
  const Pass run{dense, sequence, ws, be, control};
  Stream x = RunLayers(tokens, run, false);
  ApplyNorm(weights_->head_norm, x.hidden(), be);
  VisitLogits(TensorView(x.hidden()).Rows(0, count - 1), run, [&](int64_t first, const TensorView& logits) {
    for (int64_t row = 0; row < logits.rows; ++row) {
      const auto next = static_cast<size_t>(first + row + 1);
      score.log_probabilities[next] = LogSoftmax(logits.Row<float>(row))(tokens[next]);
    }
  });
  score.flops = sequence.ledger.prefill_flops() + static_cast<double>(count - 2) * HeadFlops(config_->shape);
  return score;
}

// Uses the prefill kernel, because there are many rows.
void Transformer::VisitLogits(const TensorView& normed, const Pass& pass, const LogitsVisitor& visit) const {
  const std::vector<Tile> tiles = TilesOf(normed.rows, 0, kScoredRows);
  Projection head;  // not workspace.head, which is for single rows and stays unpacked
  // Few prompts are scored, so the head does not take the room of weights that all prompts use.
  WeightStores none;
  head.Prepare(weights_->head, tiles, none, pass.backend);
  Tensor logits;
  for (const Tile& tile : tiles) {
    logits.Resize(DType::kF32, tile.count, config_->shape.vocab);
    head(normed.Rows(tile.begin, tile.count), tile.kind, ProductEnd::kStore, logits.mutable_view(),
         pass.backend);
    Cap(logits);
    visit(tile.begin, logits.view());
    pass.control.Tick(config_->shape.layer_count());
  }
}

}  // namespace coppice
