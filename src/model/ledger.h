// Exact accounting: what a run computed and stored, and what a dense run would have computed and stored.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/model_shape.h"

namespace coppice {

// The rows that one layer computed in prefill; where it lacks a part, those that passed it.
struct LayerCounts {
  int64_t kv_rows = 0;      // n_l: rows with a key and value computed here
  int64_t query_rows = 0;   // rows that went through q, attention and o; n_l, but 1 in the last layer
  int64_t ffn_rows = 0;     // m_l
  int64_t taken_over = 0;   // rows before these, whose keys are reused from an earlier prompt
  double density = 1;       // share of causal attention's query-key pairs that was computed
  int64_t ended_rows = 0;   // rows to which the layer added its own embedding
  int64_t probed_rows = 0;  // further rows whose keys were computed, but not stored
  // Of a mixture: the experts whose weights were read, counted for each kMixtureRows rows.
  int64_t experts_read = 0;
};

// The rows that one layer computed in a decode step: the current token, and r_l tokens that returned.
struct StepCounts {
  int64_t kv_rows = 1;     // 1 + r_l
  int64_t query_rows = 1;  // 1 + r_l, but 1 in the last layer
  int64_t ffn_rows = 1;
  int64_t keys = 0;    // |A_l|: keys that each row may attend, the new ones included
  double density = 1;  // share of these keys that the current token read
  int64_t ended_rows = 1;

  // Of a plain step of `rows` tokens.
  static StepCounts OfRows(int64_t rows, int64_t keys = 0) {
    return {.kv_rows = rows, .query_rows = rows, .ffn_rows = rows, .keys = keys, .ended_rows = rows};
  }
};

// The closed forms of the papers' cost model (a multiplication and an addition count as 2), for n rows with
// keys, q queries and m rows in the FFN:
//   layer      4 d G c n + q 4 d H c + attention + f m      f = 6 d I, or 4 d I if the FFN has two matrices;
//              2 d G c more for a row whose key alone was computed; q 2 d H c more where attention's output
//              has a gate. Of a mixture, I is the width of the k experts of a row and of the shared one
//              together, and the router adds 2 d E to f
//   state      of a layer that carries one, per row: 2 d (channels + heads' steps and betas)
//              + 2 taps channels + 7 (gated delta; Mamba-2: 5) key_dim value_width + 4 d value_width; of a
//              short convolution 2 d 3 channels + 2 taps channels + 2 d channels
//   attention  causal, over all rows: 2 H c n^2; after p reused rows: 2 H c ((p + n)^2 - p^2);
//              one row over n keys: 4 H c n; a sliding window limits the keys of a row
//              an embedding of the layer's own, of width p: 6 d p
//   head       2 d V for one row
//   tail       of one row: each layer's q, o, FFN and embedding, and its attention over the keys it attends
// The experts of a mixture that `rows` rows read if all are equally likely: E (1 - (1 - k / E)^n) for each
// group of kMixtureRows rows. Pruning leaves each expert fewer rows, but hardly leaves an expert none.
double ExpectedExperts(const MixtureShape& mixture, int64_t rows);
// LayerFlops is for a layer like the model's first.
double LayerFlops(const ModelShape& shape, const LayerCounts& counts);
double HeadFlops(const ModelShape& shape);
// One decode step: sum_l (1 + r_l)(a + f) + 4 H c (1 + r_l) |A_l|.
double DecodeFlops(const ModelShape& shape, const std::vector<StepCounts>& layers);
// A decode step of a dense sequence, with `keys` cached rows in every layer, the current token's included.
double DenseDecodeFlops(const ModelShape& shape, int64_t keys);
// A dense prefill. In its last layer q, o, attention and the FFN run for the last position only.
double DensePrefillFlops(const ModelShape& shape, int64_t tokens);

// The parts of a prefill, which run at different speeds.
struct PrefillFlops {
  double products = 0;     // of many rows with packed weights; includes selection_flops
  double single_rows = 0;  // of only the last position: the last layer's q, o and FFN, and the head
  double attention = 0;

  double total() const { return products + single_rows + attention; }
};
PrefillFlops DensePrefillParts(const ModelShape& shape, int64_t tokens);

// The rows that one process computed in a prefill, summed over layers.
struct ComputedRows {
  int64_t kv = 0;
  int64_t query = 0;
  int64_t ffn = 0;
};

// What one of several processes did in a prefill that they computed together.
struct ProcessWork {
  ComputedRows rows;
  int64_t bytes_sent = 0;     // to the other processes
  double seconds_waited = 0;  // for the others and for transfers
  double cpu_seconds = 0;     // of all its threads
};

class Ledger {
 public:
  Ledger() = default;
  Ledger(const ModelShape& shape, int64_t prompt_tokens)
      : shape_(shape), prompt_tokens_(prompt_tokens), layers_(static_cast<size_t>(shape.layer_count())) {}

  LayerCounts& layer(int l) { return layers_[static_cast<size_t>(l)]; }
  const std::vector<LayerCounts>& layers() const { return layers_; }
  // A step with the sequence's next `tokens` tokens.
  void CountDecodeStep(const std::vector<StepCounts>& layers, int64_t tokens = 1);
  // The last `tokens` tokens of steps were not kept: their work counts, but a dense run has fewer tokens.
  void DropTokens(int64_t tokens);
  // Updates the peaks below; called at the end of prefill and of each step.
  void NoteHeld(int64_t kv, int64_t aux);

  int64_t prompt_tokens() const { return prompt_tokens_; }
  int64_t token_layers() const;  // sum of n_l, and of 1 + r_l per generated token
  int64_t token_layers_dense() const;
  // Of the prefill, over all layers, and what a dense prefill reads of them (ExpectedExperts).
  int64_t experts_read() const;
  double experts_read_dense() const;
  PrefillFlops prefill_parts() const;
  double prefill_flops() const { return prefill_parts().total(); }
  double prefill_flops_dense() const { return DensePrefillFlops(shape_, prompt_tokens_); }
  double flops() const { return prefill_flops() + decode_flops_; }
  double flops_dense() const { return prefill_flops_dense() + decode_flops_dense_; }

  double selection_flops = 0;               // of a pass that chose this prompt's tokens; in prefill_flops()
  std::vector<ProcessWork> processes = {};  // of the prefill; empty: one process computed it
  int64_t cached_tokens = 0;                // prompt tokens reused from an earlier prompt
  int64_t kv_bytes = 0;                     // held at the end of the run
  int64_t kv_bytes_dense = 0;               // what a dense run would hold
  int64_t aux_bytes = 0;                    // parked hidden states at the end of the run
  int64_t cold_bytes = 0;       // keys and values that only the cold tier holds at the end of the run
  int64_t peak_kv_bytes = 0;    // maximum of keys and values, over the ends of prefill and of each step
  int64_t peak_held_bytes = 0;  // the same maximum for keys, values and parked states together
  int64_t revived = 0;          // tokens that returned; a token counts each time
  int64_t swaps = 0;            // times that blocks moved between memory and the cold tier
  int64_t blocks_written = 0;   // to the cold tier; a block counts once per layer
  int64_t blocks_loaded = 0;    // from the cold tier; a block counts once per layer

 private:
  ModelShape shape_;
  int64_t prompt_tokens_ = 0;
  std::vector<LayerCounts> layers_;
  int64_t decode_tokens_ = 0;
  int64_t decode_token_layers_ = 0;
  double decode_flops_ = 0;
  double decode_flops_dense_ = 0;
};

}  // namespace coppice
