// The decode steps of several sequences, to be taken together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/pass.h"
#include "tensor/tensor.h"

namespace coppice {

// One sequence's step: its next tokens, and where their logits go.
struct DecodeStep {
  std::span<const int32_t> tokens;  // at least one, at the sequence's next positions
  const Pass& pass;
  Tensor& logits;  // becomes [tokens, vocab]
};

// Whether the pass's steps may be taken together with others': no policy acts in them and nothing records
// them. Holds from the end of the prefill to the end of the sequence.
bool IsPlainDecode(const Pass& pass);

// The rows of several sequences on their way through the layers. All passes use the same backend.
class DecodeBatch {
 public:
  struct Part {
    SequenceState& sequence;
    int64_t first;                   // its first row
    std::vector<int32_t> positions;  // of its rows
    int64_t rows() const { return std::ssize(positions); }
  };

  // Reserves the steps' positions in their sequences. hidden: the tokens' embeddings, [rows, d].
  DecodeBatch(std::span<DecodeStep* const> steps, Tensor hidden, int layers);

  const std::vector<Part>& parts() const { return parts_; }
  MutableTensorView hidden() { return hidden_.mutable_view(); }
  int64_t rows() const { return hidden_.rows(); }
  std::span<const int32_t> tokens() const { return tokens_; }  // [rows]
  // Of the first step's pass.
  Workspace& workspace() const { return pass_.workspace; }
  Backend& backend() const { return pass_.backend; }

 private:
  const Pass& pass_;
  std::vector<Part> parts_;
  std::vector<int32_t> tokens_;
  Tensor hidden_;
};

}  // namespace coppice
