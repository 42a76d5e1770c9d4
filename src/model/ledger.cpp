#include "model/ledger.h"

#include <algorithm>

namespace coppice {

namespace {

struct Unit {
  double kv, qo, ffn, pair;  // flops per row of k and v, of q and o, of the FFN; per query-key pair
};

Unit UnitOf(const ModelShape& s) {
  const double d = static_cast<double>(s.hidden);
  const double c = s.head_dim;
  return {.kv = 4 * d * s.kv_heads * c,
          .qo = 4 * d * s.heads * c,
          .ffn = (s.gated_ffn ? 6 : 4) * d * static_cast<double>(s.ffn),
          .pair = 4.0 * s.heads * c};
}

// Query-key pairs of `queries` rows at the end of n, by the closed form n^2 / 2 for all rows.
double Pairs(const ModelShape& s, int64_t queries, int64_t n) {
  const double keys = static_cast<double>(n);
  const double window = s.window > 0 ? std::min<double>(s.window, keys) : keys;
  if (queries < n) return static_cast<double>(queries) * window;
  return window * window / 2 + (keys - window) * window;
}

}  // namespace

double LayerFlops(const ModelShape& shape, const LayerCounts& counts) {
  const Unit u = UnitOf(shape);
  return u.kv * static_cast<double>(counts.kv_rows) + u.qo * static_cast<double>(counts.query_rows) +
         u.pair * Pairs(shape, counts.query_rows, counts.kv_rows) +
         u.ffn * static_cast<double>(counts.ffn_rows);
}

double HeadFlops(const ModelShape& shape) {
  return 2 * static_cast<double>(shape.hidden) * static_cast<double>(shape.vocab);
}

double DecodeFlops(const ModelShape& shape, const std::vector<int64_t>& keys_per_layer) {
  const Unit u = UnitOf(shape);
  double flops = HeadFlops(shape);
  for (const int64_t keys : keys_per_layer) {
    const int64_t seen = shape.window > 0 ? std::min<int64_t>(keys, shape.window) : keys;
    flops += u.kv + u.qo + u.ffn + u.pair * static_cast<double>(seen);
  }
  return flops;
}

double DensePrefillFlops(const ModelShape& shape, int64_t tokens) {
  const double all = LayerFlops(shape, {tokens, tokens, tokens});
  const double last = LayerFlops(shape, {tokens, 1, 1});
  return all * (shape.layers - 1) + last + HeadFlops(shape);
}

void Ledger::CountDecodeStep(const std::vector<int64_t>& keys_per_layer) {
  ++decode_steps_;
  decode_flops_ += DecodeFlops(shape_, keys_per_layer);
  const std::vector<int64_t> dense(static_cast<size_t>(shape_.layers), prompt_tokens_ + decode_steps_);
  decode_flops_dense_ += DecodeFlops(shape_, dense);
}

int64_t Ledger::token_layers() const {
  int64_t sum = decode_steps_ * shape_.layers;
  for (const LayerCounts& l : layers_) sum += l.kv_rows;
  return sum;
}

int64_t Ledger::token_layers_dense() const { return (prompt_tokens_ + decode_steps_) * shape_.layers; }

double Ledger::prefill_flops() const {
  double flops = HeadFlops(shape_);
  for (const LayerCounts& l : layers_) flops += LayerFlops(shape_, l);
  return flops;
}

}  // namespace coppice
