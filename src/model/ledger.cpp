#include "model/ledger.h"

#include <algorithm>
#include <cmath>

namespace coppice {

namespace {

struct Unit {
  // FLOPs per row for k and v; for q, gate and o; for the FFN; for the layer's own embedding; and per
  // query-key pair
  double kv, qo, ffn, own, pair;
};

// The weights that a row meets in the FFN.
double FfnWeights(const ModelShape& shape, const LayerShape& s) {
  const MixtureShape& m = s.mixture;
  const int64_t widths = s.ffn + m.used * m.width + m.shared_width;
  return static_cast<double>(shape.hidden) *
         static_cast<double>((shape.gated_ffn ? 3 : 2) * widths + m.experts + (m.shared_gate ? 1 : 0));
}

// Of a mixer with a state, kv is what every row runs: the projections, the convolution and the recurrence;
// and qo what a row whose output is wanted runs besides.
Unit RecurrentUnit(const ModelShape& shape, const LayerShape& layer) {
  const RecurrentShape& s = layer.recurrent;
  const double d = static_cast<double>(shape.hidden);
  const auto channels = static_cast<double>(s.channels);
  const auto values = static_cast<double>(s.value_width());
  const bool recurs = s.key_heads > 0;
  const bool delta = layer.mixer == MixerKind::kGatedDelta;
  const double mixed = recurs ? channels : 3 * channels;
  const double small = (delta ? 2 : 1) * s.value_heads;  // steps and betas
  return {.kv = 2 * d * (mixed + small) + 2 * s.taps * channels + (delta ? 7 : 5) * values * s.key_dim,
          .qo = (recurs ? 4 : 2) * d * values,
          .ffn = 2 * FfnWeights(shape, layer),
          .own = 0,
          .pair = 0};
}

Unit UnitOf(const ModelShape& shape, const LayerShape& s) {
  if (s.has_state()) return RecurrentUnit(shape, s);
  const double d = static_cast<double>(shape.hidden);
  const double c = s.head_dim;
  return {.kv = 4 * d * s.kv_heads * c,
          .qo = (s.output_gate ? 6 : 4) * d * s.heads * c,
          .ffn = 2 * FfnWeights(shape, s),
          .own = 6 * d * static_cast<double>(shape.layer_embedding),
          .pair = 4.0 * s.heads * c};
}

// Query-key pairs of causal attention over `rows` rows, by the closed form n^2 / 2.
double CausalPairs(int32_t sliding_window, int64_t rows) {
  const double keys = static_cast<double>(rows);
  const double window = sliding_window > 0 ? std::min<double>(sliding_window, keys) : keys;
  return window * window / 2 + (keys - window) * window;
}

double Pairs(int32_t window, const LayerCounts& counts) {
  const int64_t keys = counts.taken_over + counts.kv_rows;
  if (counts.query_rows < counts.kv_rows) {
    const int64_t seen = window > 0 ? std::min<int64_t>(window, keys) : keys;
    return static_cast<double>(counts.query_rows) * static_cast<double>(seen);
  }
  return CausalPairs(window, keys) - CausalPairs(window, counts.taken_over);
}

// `layers` are all layers of a prefill, whose last layer computes one row.
PrefillFlops PartsOf(const ModelShape& shape, const std::vector<LayerCounts>& layers) {
  PrefillFlops parts;
  for (size_t l = 0; l < layers.size(); ++l) {
    const Unit u = UnitOf(shape, shape.layers[l]);
    const LayerCounts& counts = layers[l];
    parts.products +=
        u.kv * (static_cast<double>(counts.kv_rows) + static_cast<double>(counts.probed_rows) / 2);
    parts.attention += u.pair * counts.density * Pairs(shape.layers[l].window, counts);
    (l + 1 < layers.size() ? parts.products : parts.single_rows) +=
        u.qo * static_cast<double>(counts.query_rows) + u.ffn * static_cast<double>(counts.ffn_rows) +
        u.own * static_cast<double>(counts.ended_rows);
  }
  return parts;
}

// The head, and the tail for one row; keys(l): those that layer l's cache holds.
template <typename Keys>
double EndFlops(const ModelShape& shape, Keys&& keys) {
  double flops = HeadFlops(shape);
  for (const LayerShape& layer : shape.tail) {
    const Unit u = UnitOf(shape, layer);
    const int64_t all = keys(layer.keys_of);
    const int64_t seen = layer.window > 0 ? std::min<int64_t>(layer.window, all) : all;
    flops += u.qo + u.ffn + u.own + u.pair * static_cast<double>(seen);
  }
  return flops;
}

}  // namespace

double ExpectedExperts(const MixtureShape& mixture, int64_t rows) {
  if (mixture.experts == 0) return 0;
  const double experts = mixture.experts;
  const auto of_group = [&](int64_t count) {
    return experts * (1 - std::pow(1 - mixture.used / experts, static_cast<double>(count)));
  };
  return static_cast<double>(rows / kMixtureRows) * of_group(kMixtureRows) + of_group(rows % kMixtureRows);
}

double LayerFlops(const ModelShape& shape, const LayerCounts& counts) {
  return PartsOf(shape, {counts}).total();
}

double HeadFlops(const ModelShape& shape) {
  return 2 * static_cast<double>(shape.hidden) * static_cast<double>(shape.vocab);
}

double DecodeFlops(const ModelShape& shape, const std::vector<StepCounts>& layers) {
  double flops = EndFlops(shape, [&](int of) { return layers[static_cast<size_t>(of)].keys; });
  for (size_t l = 0; l < layers.size(); ++l) {
    const Unit u = UnitOf(shape, shape.layers[l]);
    const StepCounts& step = layers[l];
    const int32_t window = shape.layers[l].window;
    const int64_t seen = window > 0 ? std::min<int64_t>(step.keys, window) : step.keys;
    // The current token reads its share of the keys, returned tokens read all of them.
    const double pairs =
        (static_cast<double>(step.query_rows - 1) + step.density) * static_cast<double>(seen);
    flops += u.kv * static_cast<double>(step.kv_rows) + u.qo * static_cast<double>(step.query_rows) +
             u.ffn * static_cast<double>(step.ffn_rows) + u.own * static_cast<double>(step.ended_rows) +
             u.pair * pairs;
  }
  return flops;
}

double DenseDecodeFlops(const ModelShape& shape, int64_t keys) {
  return DecodeFlops(shape,
                     std::vector<StepCounts>(static_cast<size_t>(shape.layer_count()), {.keys = keys}));
}

PrefillFlops DensePrefillParts(const ModelShape& shape, int64_t tokens) {
  const LayerCounts all{.kv_rows = tokens, .query_rows = tokens, .ffn_rows = tokens, .ended_rows = tokens};
  std::vector<LayerCounts> layers(static_cast<size_t>(shape.layer_count()), all);
  if (!layers.empty()) layers.back() = {.kv_rows = tokens, .query_rows = 1, .ffn_rows = 1, .ended_rows = 1};
  PrefillFlops parts = PartsOf(shape, layers);
  parts.single_rows += EndFlops(shape, [&](int) { return tokens; });
  return parts;
}

double DensePrefillFlops(const ModelShape& shape, int64_t tokens) {
  return DensePrefillParts(shape, tokens).total();
}

void Ledger::CountDecodeStep(const std::vector<StepCounts>& layers, int64_t tokens) {
  for (const StepCounts& step : layers) decode_token_layers_ += step.kv_rows;
  decode_flops_ += DecodeFlops(shape_, layers) + static_cast<double>(tokens - 1) * HeadFlops(shape_);
  for (int64_t i = 0; i < tokens; ++i)
    decode_flops_dense_ += DenseDecodeFlops(shape_, prompt_tokens_ + ++decode_tokens_);
}

void Ledger::DropTokens(int64_t tokens) {
  for (int64_t i = 0; i < tokens; ++i)
    decode_flops_dense_ -= DenseDecodeFlops(shape_, prompt_tokens_ + decode_tokens_--);
}

void Ledger::NoteHeld(int64_t kv, int64_t aux) {
  peak_kv_bytes = std::max(peak_kv_bytes, kv);
  peak_held_bytes = std::max(peak_held_bytes, kv + aux);
}

int64_t Ledger::token_layers() const {
  int64_t sum = decode_token_layers_;
  for (const LayerCounts& l : layers_) sum += l.kv_rows;
  return sum;
}

int64_t Ledger::token_layers_dense() const {
  return (prompt_tokens_ + decode_tokens_) * shape_.layer_count();
}

int64_t Ledger::experts_read() const {
  int64_t sum = 0;
  for (const LayerCounts& l : layers_) sum += l.experts_read;
  return sum;
}

double Ledger::experts_read_dense() const {
  double sum = 0;
  for (int l = 0; l < shape_.layer_count(); ++l)
    sum += ExpectedExperts(shape_.layer(l).mixture, l + 1 < shape_.layer_count() ? prompt_tokens_ : 1);
  return sum;
}

PrefillFlops Ledger::prefill_parts() const {
  PrefillFlops parts = PartsOf(shape_, layers_);
  parts.products += selection_flops;
  parts.single_rows += EndFlops(shape_, [&](int of) {
    const LayerCounts& layer = layers_[static_cast<size_t>(of)];
    return layer.taken_over + layer.kv_rows;
  });
  return parts;
}

}  // namespace coppice
