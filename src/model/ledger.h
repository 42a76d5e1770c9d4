// Exact accounting: what a run computed and stored, and what the dense run would have.
#pragma once

#include <cstdint>
#include <vector>

#include "policies/shape.h"

namespace coppice {

// What one layer computed in prefill, in rows.
struct LayerCounts {
  int64_t kv_rows = 0;     // n_l: rows whose key and value were computed
  int64_t query_rows = 0;  // rows that went through q, attention and o; n_l, but 1 in the last layer
  int64_t ffn_rows = 0;    // m_l
  int64_t taken_over = 0;  // rows before those, whose keys came from an earlier prompt
  double density = 1;      // of the query-key pairs of causal attention, the share that was computed
};

// What one layer computed in a decode step: the current token, and r_l that came back.
struct StepCounts {
  int64_t kv_rows = 1;     // 1 + r_l
  int64_t query_rows = 1;  // 1 + r_l, but 1 in the last layer
  int64_t ffn_rows = 1;
  int64_t keys = 0;    // |A_l|: keys that each of them may attend, the fresh ones included
  double density = 1;  // of those, the share that the current token read
};

// The closed forms of the methods' cost model (mul + add = 2), n rows with keys, q queries, m rows in the FFN:
//   layer      4 d G c n + q 4 d H c + attention + f m      f = 6 d I, or 4 d I where the FFN has two matrices
//   attention  over all rows, causal: 2 H c n^2; behind p rows taken over: 2 H c ((p + n)^2 - p^2); one row over n keys:
//              4 H c n; a window cuts the keys of a row
//   head       2 d V for one row
double LayerFlops(const ModelShape& shape, const LayerCounts& counts);
double HeadFlops(const ModelShape& shape);
// One generated token and what was computed with it: sum_l (1 + r_l)(a + f) + 4 H c (1 + r_l) |A_l|.
double DecodeFlops(const ModelShape& shape, const std::vector<StepCounts>& layers);
// Of a dense sequence: `keys` cached rows in every layer, itself included.
double DenseDecodeFlops(const ModelShape& shape, int64_t keys);
// Dense prefill of n tokens with the last layer's rule (q, o, attention and FFN for the last position only).
double DensePrefillFlops(const ModelShape& shape, int64_t tokens);

// The parts of a prefill that run at rates of their own.
struct PrefillFlops {
  double products = 0;  // of many rows, the weights packed; and the other model's of selection_flops
  double single_rows =
      0;  // what only the last position goes through: the last layer's q, o and FFN, the head
  double attention = 0;

  double total() const { return products + single_rows + attention; }
};
PrefillFlops DensePrefillParts(const ModelShape& shape, int64_t tokens);

class Ledger {
 public:
  Ledger() = default;
  Ledger(const ModelShape& shape, int64_t prompt_tokens)
      : shape_(shape), prompt_tokens_(prompt_tokens), layers_(static_cast<size_t>(shape.layers)) {}

  LayerCounts& layer(int l) { return layers_[static_cast<size_t>(l)]; }
  const std::vector<LayerCounts>& layers() const { return layers_; }
  void CountDecodeStep(const std::vector<StepCounts>& layers);
  // At the end of prefill and of each step.
  void NoteHeld(int64_t kv, int64_t aux);

  int64_t prompt_tokens() const { return prompt_tokens_; }
  int64_t token_layers() const;  // sum of n_l, and of 1 + r_l per generated token
  int64_t token_layers_dense() const;
  PrefillFlops prefill_parts() const;
  double prefill_flops() const { return prefill_parts().total(); }
  double prefill_flops_dense() const { return DensePrefillFlops(shape_, prompt_tokens_); }
  double flops() const { return prefill_flops() + decode_flops_; }
  double flops_dense() const { return prefill_flops_dense() + decode_flops_dense_; }

  double selection_flops = 0;   // of another model that chose what enters this one; part of prefill_flops()
  int64_t cached_tokens = 0;    // of the prompt, taken over from an earlier one as far as the method allows
  int64_t kv_bytes = 0;         // held at the end of the run
  int64_t kv_bytes_dense = 0;   // what a dense run would hold
  int64_t aux_bytes = 0;        // parked hidden states at the end of the run
  int64_t cold_bytes = 0;       // keys and values that are in the cold tier alone, at the end of the run
  int64_t peak_kv_bytes = 0;    // the most that keys and values took, of any moment at a step's end
  int64_t peak_held_bytes = 0;  // the most that hot keys, values and parked states took together, likewise
  int64_t revived = 0;          // tokens that came back, each counted every time
  int64_t swaps = 0;            // times that what a group of layers attends was exchanged
  int64_t blocks_written = 0;   // to the cold tier, per layer
  int64_t blocks_loaded = 0;    // from it

 private:
  ModelShape shape_;
  int64_t prompt_tokens_ = 0;
  std::vector<LayerCounts> layers_;
  int64_t decode_steps_ = 0;
  int64_t decode_token_layers_ = 0;
  double decode_flops_ = 0;
  double decode_flops_dense_ = 0;
};

}  // namespace coppice
