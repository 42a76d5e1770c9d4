// The mixers of layers that carry a state instead of keys: a short convolution, and a linear recurrence.
//
// The recurrence of head h, whose query and key are those of key head g(h), over the rows of a sequence:
//   S <- e^r S + k (x) d,   o = S^T q,   S [key_dim, value_dim] fp32
// Gated delta rule (Yang et al. 2024, arXiv 2412.06464, eq. 10; transformers, modeling_qwen3_5.py,
// torch_recurrent_gated_delta_rule), where q and k first get the length 1, and q is divided by sqrt(key_dim):
//   r = rate softplus(step + bias),   d = sigmoid(beta) (v - e^r S^T k)
// Mamba-2 (Dao and Gu 2024, arXiv 2405.21060, section 6):
//   t = softplus(step + bias), r = rate t, d = t v, o = S^T q + skip v
//
// Rows are computed one after the other, whatever their number, so a row has the same bits in prefill in any
// tiles, in a decode step, and after a sequence was resumed at any row.
#pragma once

#include <cstdint>

#include "tensor/view.h"

namespace coppice {

enum class RecurrenceRule : uint8_t { kGatedDelta, kMamba2 };

struct RecurrenceShape {
  RecurrenceRule rule = RecurrenceRule::kGatedDelta;
  int key_heads = 0;
  int value_heads = 0;  // a multiple of key_heads
  int key_dim = 0;
  int value_dim = 0;
  bool tiled = false;  // g(h) = h mod key_heads; else h / (value_heads / key_heads)

  int KeyHeadOf(int head) const { return tiled ? head % key_heads : head / (value_heads / key_heads); }
  int64_t key_width() const { return int64_t{key_heads} * key_dim; }
  int64_t value_width() const { return int64_t{value_heads} * value_dim; }
};

// All [1, value_heads] fp32.
struct RecurrenceWeights {
  TensorView rate;  // at most 0
  TensorView bias;
  TensorView skip;  // of Mamba-2; else empty
};

// Some rows of one sequence, all fp32. Views may be columns of wider matrices.
struct RecurrenceRows {
  TensorView q;     // [m, key_heads * key_dim]
  TensorView k;     // [m, key_heads * key_dim]
  TensorView v;     // [m, value_heads * value_dim]
  TensorView step;  // [m, value_heads]
  TensorView beta;  // [m, value_heads] of the gated delta rule; else empty
  // [value_heads * key_dim, value_dim]: row h key_dim + i is S_i of head h. Afterwards that behind the last
  // row, or what it was, if `keeps_state`.
  MutableTensorView state;
  MutableTensorView out;  // [m, value_heads * value_dim]
  bool keeps_state = false;
};

// y[i][c] = f(sum_t weight[t][c] x[i - (taps - 1) + t][c] + bias[c]), where rows before x are those of
// `before`. The sum begins with t = 0.
struct Convolution {
  TensorView weight;  // [taps, channels] fp32
  TensorView bias;    // [1, channels] fp32, or empty
  bool silu = true;   // f; else the identity
};

}  // namespace coppice
