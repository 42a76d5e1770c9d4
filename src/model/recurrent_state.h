// What a layer with a state keeps of one sequence.
#pragma once

#include <cstdint>

#include "formats/model_shape.h"
#include "tensor/tensor.h"

namespace coppice {

// Behind the last of a sequence's rows, all fp32.
struct RecurrentSnapshot {
  Tensor last;   // [taps - 1, channels]: the convolution's last inputs, oldest first
  Tensor state;  // [value_heads * key_dim, value_dim]

  RecurrentSnapshot Clone() const { return {last.Clone(), state.Clone()}; }
  int64_t bytes() const { return last.bytes() + state.bytes(); }
};

// The snapshot, and the inputs of a decode step of several tokens, of which the last may be taken back: a
// state has no way back, so the step leaves it as it was, and the next one brings it up to date.
struct RecurrentState {
  RecurrentSnapshot now;
  int64_t pending = 0;  // rows of the tensors below that `now` lacks
  Tensor inputs;        // [rows, channels] of the convolution
  Tensor convolved;     // [rows, channels]
  Tensor steps;         // [rows, steps and betas]

  // Zeros where nothing is there yet.
  void Begin(const RecurrentShape& shape);
  void DropLast(int64_t tokens);
  int64_t bytes() const { return now.bytes(); }  // 0: of a layer that has no state, or before its first row
};

// Appends the rows of x to `last` and keeps as many as it has.
void ShiftRows(const TensorView& x, MutableTensorView last);

}  // namespace coppice
