// The residual stream: the hidden states of the tokens that are still computed, and what policies may see of
// them.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "policies/policy.h"
#include "tensor/tensor.h"

namespace coppice {

class Stream {
 public:
  // hidden: [positions.size(), d] fp32; depth: for each position of the sequence, how many layers hold its
  // key and value.
  Stream(Phase phase, int layers, int64_t prompt_tokens, Tensor hidden, std::vector<int32_t> positions,
         std::vector<int32_t>& depth);

  Phase phase() const { return seen_.phase; }
  int64_t rows() const { return static_cast<int64_t>(positions_.size()); }
  const std::vector<int32_t>& positions() const { return positions_; }
  MutableTensorView hidden() { return hidden_.mutable_view().Rows(0, rows()); }  // [rows, d]

  // Scores of layer l - 1 stay visible until layer l observes its own.
  Observation& Enter(int layer);
  Observation& seen() { return seen_; }

  // The rows outside `kept` leave, with keys and values in `layers_computed` layers.
  void Keep(const TokenSet& kept, int layers_computed, Backend& be);
  // Only the last row goes on: the last layer needs the outputs of no other. Nothing is pruned by it.
  void KeepLastOnly(Backend& be);

 private:
  void Compact(const TokenSet& kept, Backend& be);

  Tensor hidden_;
  std::vector<int32_t> positions_;
  std::vector<int32_t>& depth_;
  Observation seen_;
};

}  // namespace coppice
