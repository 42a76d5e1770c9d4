#include "engine/draft_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "engine/open_model.h"
#include "policies/methods/specprefill.h"

namespace coppice {

namespace {

// Ids pass from one model to the other, so each of the large model's must mean the same to the second.
void CheckTokensMatch(const std::string& path, const Tokenizer* draft, const Tokenizer& target) {
  if (draft == nullptr) throw Error("{}: has no tokenizer, so it cannot choose tokens", path);
  if (draft->vocab_size() < target.vocab_size()) {
    throw Error("{}: has {} tokens and the model {}: speculative prefill needs the same tokenizer", path,
                draft->vocab_size(), target.vocab_size());
  }
  for (int32_t id = 0; id < target.vocab_size(); ++id) {
    if (draft->Piece(id, true) != target.Piece(id, true) || draft->IsControl(id) != target.IsControl(id)) {
      throw Error(
          "{}: token {} is \"{}\" and the model's is \"{}\": speculative prefill needs the same tokenizer",
          path, id, draft->Piece(id, true), target.Piece(id, true));
    }
  }
}

}  // namespace

double LookAheadFlops(const ModelShape& draft, int64_t tokens, int look_ahead) {
  double flops = DensePrefillFlops(draft, tokens - 1);
  for (int64_t k = 0; k < look_ahead; ++k) flops += DenseDecodeFlops(draft, tokens + k);
  return flops;
}

DraftReader::DraftReader(const std::string& path, const Tokenizer& target, int64_t tile_rows,
                         Backend* backend)
    : path_(path),
      transformer_([&] {
        OpenedModel model = OpenModel(path);
        CheckTokensMatch(path, model.tokenizer.get(), target);
        tokenizer_ = std::move(model.tokenizer);
        return MakeTransformer(std::move(model.store), std::move(model.config), backend);
      }()),
      tile_rows_(std::max<int64_t>(tile_rows, 1)) {}

std::string DraftReader::Refusal(std::span<const int32_t> tokens) const {
  const ModelConfig& config = transformer_.config();
  const int32_t window = config.shape.NarrowestWindow();
  if (window > 0 && std::ssize(tokens) > window) {
    return fmt::format("the second model attends in a sliding window of {}, shorter than the prompt", window);
  }
  if (std::ssize(tokens) > config.context) {
    return fmt::format("the second model was trained for {} tokens, fewer than the prompt has",
                       config.context);
  }
  // Models of one family may have different numbers of rows without a token.
  const int32_t highest = tokens.empty() ? 0 : *std::max_element(tokens.begin(), tokens.end());
  if (highest >= config.shape.vocab) return fmt::format("the second model has no token {}", highest);
  return "";
}

DraftReading DraftReader::Read(std::span<const int32_t> tokens, int look_ahead, int pool,
                               const RunControl& control, Backend& be) const {
  const int64_t count = std::ssize(tokens);
  COPPICE_CHECK(count >= 2);
  LookAhead scores(count, pool);
  SequenceState sequence = transformer_.NewSequence(count - 1, count + look_ahead, be);
  Workspace workspace = transformer_.NewWorkspace(tile_rows_, be.memory());
  RunControl part = control;
  part.progress = [&](double layers) {
    if (control.progress) control.progress(layers / transformer_.config().shape.layer_count());
  };
  Tensor logits;
  transformer_.Prefill(tokens.first(static_cast<size_t>(count - 1)), {scores, sequence, workspace, be, part},
                       logits);
  part.progress = {};
  int32_t next = tokens.back();
  for (int k = 0; k < look_ahead; ++k) {
    part.Pause();
    transformer_.Decode(next, {scores, sequence, workspace, be, part}, logits);
    scores.EndQuery();
    const std::span<const float> row = logits.view().Row<float>(0);
    next = static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
    if (tokenizer_->EndsGeneration(next)) break;
  }
  return {scores.Importance(), sequence.ledger.flops()};
}

}  // namespace coppice
