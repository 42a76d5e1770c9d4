// The weights of mixers with a state, and of queries with a gate behind each head.
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "model/weights_reader.h"

namespace coppice {

namespace {

struct Names {
  const char *mixed, *gate, *step, *beta, *convolution, *rate, *bias, *norm, *output;
};

// A file stores the logarithm of -rate, or the rate.
constexpr Names kGgufDelta = {"attn_qkv", "attn_gate",   "ssm_alpha",       "ssm_beta", "ssm_conv1d.weight",
                              "ssm_a",    "ssm_dt.bias", "ssm_norm.weight", "ssm_out"};
constexpr Names kHfDelta = {"linear_attn.in_proj_qkv", "linear_attn.in_proj_z",     "linear_attn.in_proj_a",
                            "linear_attn.in_proj_b",   "linear_attn.conv1d.weight", "linear_attn.A_log",
                            "linear_attn.dt_bias",     "linear_attn.norm.weight",   "linear_attn.out_proj"};

constexpr Names kGgufMamba = {
    "ssm_in", "", "", "", "ssm_conv1d.weight", "ssm_a", "ssm_dt.bias", "ssm_norm.weight", "ssm_out"};
// Behind the name of the mixer.
constexpr Names kHfMamba = {"in_proj",     "",        "", "", "conv1d.weight", "A_log", "dt_bias",
                            "norm.weight", "out_proj"};

// [channels, taps] as [taps, channels].
TensorView LoadTaps(WeightsReader& read, const std::string& name, const RecurrentShape& s) {
  const TensorView stored = read.Floats(name, s.channels, s.taps);
  Tensor turned(DType::kF32, s.taps, s.channels);
  for (int64_t c = 0; c < s.channels; ++c) {
    for (int t = 0; t < s.taps; ++t) {
      turned.mutable_view().Row<float>(t)[static_cast<size_t>(c)] =
          stored.Row<float>(c)[static_cast<size_t>(t)];
    }
  }
  return read.Own(std::move(turned));
}

// A vector that a file may store in several rows, as [1, size].
TensorView OneRow(WeightsReader& read, const std::string& name, int64_t size) {
  const TensorView stored = read.AllFloats(name, size);
  Tensor row(DType::kF32, 1, size);
  for (int64_t i = 0; i < size; ++i) {
    row.mutable_view().Row<float>(0)[static_cast<size_t>(i)] =
        stored.Row<float>(i / stored.cols)[static_cast<size_t>(i % stored.cols)];
  }
  return read.Own(std::move(row));
}

TensorView LoadRate(WeightsReader& read, const std::string& name, int64_t heads, bool as_logarithm) {
  const TensorView stored = OneRow(read, name, heads);
  Tensor rate(DType::kF32, 1, heads);
  for (int64_t h = 0; h < heads; ++h) {
    const float value = stored.Row<float>(0)[static_cast<size_t>(h)];
    const float r = as_logarithm ? -std::exp(value) : value;
    if (!(r <= 0) || std::isinf(r))
      read.Fail(name, fmt::format("holds {}, which is no rate of decay", value));
    rate.mutable_view().Row<float>(0)[static_cast<size_t>(h)] = r;
  }
  return read.Own(std::move(rate));
}

// Some rows of a matrix [heads * 2 * head_dim, d]: of each head the first or the second half.
Linear HalfOfHeads(WeightsReader& read, const Linear& both, const LayerShape& layer, bool second) {
  const TensorView& weight = both.weight;
  Tensor half(weight.dtype, layer.query_width(), weight.cols);
  Tensor bias(DType::kF32, 1, half.rows());
  for (int64_t row = 0; row < half.rows(); ++row) {
    const int64_t c = layer.head_dim;
    const int64_t from = row / c * 2 * c + (second ? c : 0) + row % c;
    std::memcpy(half.mutable_view().RowBytes(row), weight.RowBytes(from),
                static_cast<size_t>(BytesOf(weight.dtype, weight.cols)));
    if (!both.bias.empty()) {
      bias.mutable_view().Row<float>(0)[static_cast<size_t>(row)] =
          both.bias.Row<float>(0)[static_cast<size_t>(from)];
    }
  }
  return {read.Own(std::move(half)), both.bias.empty() ? TensorView() : read.Own(std::move(bias))};
}

}  // namespace

void LoadQueryAndGate(WeightsReader& read, const std::string& name, const LayerShape& layer, int64_t hidden,
                      bool bias, LayerWeights& w) {
  const Linear both = read.Map(name, 2 * layer.query_width(), hidden, bias);
  w.query = HalfOfHeads(read, both, layer, false);
  w.output_gate = HalfOfHeads(read, both, layer, true);
}

namespace {

void LoadDelta(WeightsReader& read, const ModelConfig& config, const std::string& p, const RecurrentShape& s,
               LayerWeights& w) {
  const int64_t hidden = config.shape.hidden;
  const Names& n = config.hf_names ? kHfDelta : kGgufDelta;
  RecurrentWeights& own = w.recurrent;
  own.mixed = read.Map(p + n.mixed, s.channels, hidden, false);
  own.gate = read.Map(p + n.gate, s.value_width(), hidden, false);
  own.step = read.Map(p + n.step, s.value_heads, hidden, false);
  own.beta = read.Map(p + n.beta, s.value_heads, hidden, false);
  own.convolution = {.weight = LoadTaps(read, p + n.convolution, s), .bias = {}};
  own.recurrence = {.rate = LoadRate(read, p + n.rate, s.value_heads, config.hf_names),
                    .bias = read.Vector(p + n.bias, s.value_heads, true),
                    .skip = {}};
  own.norm = {read.Vector(p + n.norm, s.value_dim, true), {}};
  w.output = read.Map(p + n.output, hidden, s.value_width(), false);
}

// One matrix has the rows of the gate, of what goes through the convolution, and of the steps.
void LoadMamba(WeightsReader& read, const ModelConfig& config, const std::string& layer,
               const RecurrentShape& s, LayerWeights& w) {
  const char* const mixer = config.names == NameStyle::kNemotron ? "mixer." : "mamba.";
  const std::string p = config.hf_names ? layer + mixer : layer;
  const int64_t hidden = config.shape.hidden;
  const int64_t inner = s.value_width();
  const Names& n = config.hf_names ? kHfMamba : kGgufMamba;
  const Linear all = read.Map(p + n.mixed, inner + s.channels + s.value_heads, hidden, false);
  if (!all.bias.empty()) read.Fail(p + n.mixed + ".bias", "is not supported");
  RecurrentWeights& own = w.recurrent;
  own.gate = {all.weight.Rows(0, inner), {}};
  own.mixed = {all.weight.Rows(inner, s.channels), {}};
  own.step = {all.weight.Rows(inner + s.channels, s.value_heads), {}};
  const std::string convolution = p + n.convolution;
  const std::string bias = convolution.substr(0, convolution.rfind('.')) + ".bias";
  own.convolution = {.weight = LoadTaps(read, convolution, s), .bias = read.Vector(bias, s.channels, false)};
  own.recurrence = {.rate = LoadRate(read, p + n.rate, s.value_heads, config.hf_names),
                    .bias = read.Vector(p + n.bias, s.value_heads, true),
                    .skip = OneRow(read, p + (config.hf_names ? "D" : "ssm_d"), s.value_heads)};
  own.norm = {OneRow(read, p + n.norm, inner), {}};
  w.output = read.Map(p + n.output, hidden, inner, false);
}

void LoadShortConv(WeightsReader& read, const ModelConfig& config, const std::string& p,
                   const RecurrentShape& s, LayerWeights& w) {
  const std::string name = p + (config.hf_names ? "conv." : "shortconv.");
  const int64_t hidden = config.shape.hidden;
  w.recurrent.mixed = read.Map(name + "in_proj", 3 * hidden, hidden, false);
  w.recurrent.convolution = {.weight = LoadTaps(read, name + "conv.weight", s), .bias = {}, .silu = false};
  w.output = read.Map(name + "out_proj", hidden, hidden, false);
}

}  // namespace

void LoadRecurrent(WeightsReader& read, const ModelConfig& config, const std::string& p,
                   const LayerShape& layer, LayerWeights& w) {
  switch (layer.mixer) {
    case MixerKind::kGatedDelta:
      return LoadDelta(read, config, p, layer.recurrent, w);
    case MixerKind::kMamba2:
      return LoadMamba(read, config, p, layer.recurrent, w);
    case MixerKind::kShortConv:
      return LoadShortConv(read, config, p, layer.recurrent, w);
    case MixerKind::kAttention:
    case MixerKind::kNone:
      COPPICE_CHECK(false);
  }
}

}  // namespace coppice
