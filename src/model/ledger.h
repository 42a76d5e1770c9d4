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
};

// The closed forms of the methods' cost model (mul + add = 2), n rows with keys, q queries, m rows in the FFN:
//   layer      4 d G c n + q 4 d H c + attention + f m      f = 6 d I, or 4 d I where the FFN has two matrices
//   attention  over all rows, causal: 2 H c n^2; one row over n keys: 4 H c n; a window cuts the keys of a row
//   head       2 d V for one row
double LayerFlops(const ModelShape& shape, const LayerCounts& counts);
double HeadFlops(const ModelShape& shape);
// One generated token that attends keys_per_layer[l] cached rows in layer l, itself included.
double DecodeFlops(const ModelShape& shape, const std::vector<int64_t>& keys_per_layer);
// Dense prefill of n tokens with the last layer's rule (q, o, attention and FFN for the last position only).
double DensePrefillFlops(const ModelShape& shape, int64_t tokens);

class Ledger {
 public:
  Ledger() = default;
  Ledger(const ModelShape& shape, int64_t prompt_tokens)
      : shape_(shape), prompt_tokens_(prompt_tokens), layers_(static_cast<size_t>(shape.layers)) {}

  LayerCounts& layer(int l) { return layers_[static_cast<size_t>(l)]; }
  const std::vector<LayerCounts>& layers() const { return layers_; }
  void CountDecodeStep(const std::vector<int64_t>& keys_per_layer);

  int64_t token_layers() const;  // sum of n_l, and L per generated token
  int64_t token_layers_dense() const;
  double prefill_flops() const;
  double prefill_flops_dense() const { return DensePrefillFlops(shape_, prompt_tokens_); }
  double flops() const { return prefill_flops() + decode_flops_; }
  double flops_dense() const { return prefill_flops_dense() + decode_flops_dense_; }

  int64_t kv_bytes = 0;        // held at the end of the run
  int64_t kv_bytes_dense = 0;  // what a dense run would hold
  // Nothing fills these yet: they stay zero until a method parks or swaps.
  int64_t aux_bytes = 0;
  int64_t cold_bytes = 0;
  int64_t revived = 0;
  int64_t swaps = 0;

 private:
  ModelShape shape_;
  int64_t prompt_tokens_ = 0;
  std::vector<LayerCounts> layers_;
  int64_t decode_steps_ = 0;
  double decode_flops_ = 0;
  double decode_flops_dense_ = 0;
};

}  // namespace coppice
