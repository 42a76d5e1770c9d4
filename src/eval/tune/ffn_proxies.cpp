#include "eval/tune/ffn_proxies.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <utility>

#include "base/agreement.h"
#include "base/error.h"
#include "eval/tune/ffn_sample.h"
#include "eval/tune/low_rank.h"
#include "formats/quants.h"
#include "formats/safetensors_writer.h"
#include "policies/methods/spts_proxy.h"
#include "policies/presets.h"

namespace coppice {

namespace {

constexpr double kLargest = 0.2;      // rho: the share of a channel's values whose mean is its importance
constexpr double kTop = 0.4;          // FfnProxyAgreement::overlap
constexpr int64_t kBlock = 512;       // channels at a time, a multiple of every quantised block
constexpr double kSampleShare = 0.5;  // of the progress

// Of a layer's sampled rows.
struct Study {
  std::vector<float> importance;  // [ffn]
  std::vector<float> norms;       // ||F(x)|| of the held-out rows
};

// The mean of the largest values of a column.
float MeanOfLargest(const TensorView& z, int64_t rows, int64_t column, std::vector<float>& values) {
  values.clear();
  for (int64_t i = 0; i < rows; ++i) values.push_back(std::abs(z.Row<float>(i)[static_cast<size_t>(column)]));
  const auto count = static_cast<std::ptrdiff_t>(std::ceil(kLargest * static_cast<double>(rows)));
  std::nth_element(values.begin(), values.begin() + count - 1, values.end(), std::greater<>());
  return static_cast<float>(std::accumulate(values.begin(), values.begin() + count, 0.0) /
                            static_cast<double>(count));
}

float Length(std::span<const float> row) {
  double sum = 0;
  for (const float value : row) sum += double{value} * value;
  return static_cast<float>(std::sqrt(sum));
}

// An FFN in fp32, a block of channels at a time. Whole, its weights in fp32 would take 0.7 GB in a model of
// 8B parameters.
class PlainFfn {
 public:
  PlainFfn(const LayerWeights& weights, float eps, Backend& be) : w_(weights), eps_(eps), be_(be) {}

  Study Of(const FfnSample& sample, size_t layer, const std::atomic<bool>* cancelled) const {
    const TensorView x = sample.layers[layer].view();
    const int64_t held_out = x.rows - sample.calibrated;
    Tensor normed(DType::kF32, x.rows, x.cols);
    if (w_.ffn_norm.bias.empty()) {
      be_.RmsNorm(x, w_.ffn_norm.weight, eps_, normed.mutable_view());
    } else {
      be_.LayerNorm(x, w_.ffn_norm.weight, w_.ffn_norm.bias, eps_, normed.mutable_view());
    }
    Tensor out = Tensor::Zeros(DType::kF32, held_out, x.cols);
    Study study;
    std::vector<float> values;
    for (int64_t begin = 0; begin < w_.up.weight.rows; begin += kBlock) {
      ThrowIfCancelled(cancelled);
      const int64_t count = std::min(kBlock, w_.up.weight.rows - begin);
      const Tensor z = Inner(normed.view(), begin, count);
      for (int64_t c = 0; c < count; ++c)
        study.importance.push_back(MeanOfLargest(z.view(), sample.calibrated, c, values));
      PackedMatrix down;
      be_.Pack(w_.down.weight.Cols(begin, count), down);
      be_.ProductInto(z.view().Rows(sample.calibrated, held_out), down,
                      begin == 0 ? w_.down.bias : TensorView(), ProductEnd::kAdd, out.mutable_view());
    }
    for (int64_t i = 0; i < held_out; ++i) study.norms.push_back(Length(out.view().Row<float>(i)));
    return study;
  }

 private:
  // [rows, count]: what down multiplies.
  Tensor Inner(const TensorView& normed, int64_t begin, int64_t count) const {
    const auto rows = [&](const TensorView& w) { return w.Rows(begin, count); };
    const auto bias = [&](const Linear& w) { return w.bias.empty() ? w.bias : w.bias.Cols(begin, count); };
    Tensor up = Times(normed, rows(w_.up.weight), bias(w_.up));
    if (w_.gate.weight.empty()) {
      be_.Gelu(up.mutable_view());
      return up;
    }
    Tensor gate = Times(normed, rows(w_.gate.weight), bias(w_.gate));
    be_.GateMul(gate.mutable_view(), up.view(), Activation::kSilu);
    return gate;
  }
  Tensor Times(const TensorView& x, const TensorView& w, const TensorView& bias) const {
    PackedMatrix packed;
    be_.Pack(w, packed);
    Tensor y(DType::kF32, x.rows, w.rows);
    be_.Product(x, packed, bias, y.mutable_view());
    return y;
  }

  const LayerWeights& w_;
  float eps_;
  Backend& be_;
};

// The rows `chosen` of a weight, in fp32.
Tensor RowsOf(const TensorView& w, const std::vector<int32_t>& chosen) {
  Tensor rows(DType::kF32, std::ssize(chosen), w.cols);
  for (size_t i = 0; i < chosen.size(); ++i) {
    DequantizeRow(w.dtype, w.RowBytes(chosen[i]), rows.mutable_view().Row<float>(static_cast<int64_t>(i)));
  }
  return rows;
}

Tensor ColumnsOf(const TensorView& w, const std::vector<int32_t>& chosen) {
  Tensor columns(DType::kF32, w.rows, std::ssize(chosen));
  std::vector<float> row(static_cast<size_t>(w.cols));
  for (int64_t i = 0; i < w.rows; ++i) {
    DequantizeRow(w.dtype, w.RowBytes(i), row);
    const std::span<float> to = columns.mutable_view().Row<float>(i);
    for (size_t j = 0; j < chosen.size(); ++j) to[j] = row[static_cast<size_t>(chosen[j])];
  }
  return columns;
}

// Adds tensors of one layer after the other, and holds their values until they are written.
class ProxyWriter {
 public:
  ProxyWriter(const ModelConfig& config, const FfnProxyOptions& options, const FfnProxyResult& sizes)
      : config_(config), options_(options), rank_(sizes.rank) {
    const ModelShape& s = config.shape;
    biases_ = config.all_biases;
    metadata_ = {{"layers", fmt::format("{}", s.layer_count())},
                 {"first_layer", "0"},
                 {"channels", fmt::format("{}", sizes.channels)},
                 {"rank", fmt::format("{}", sizes.rank)},
                 {"norm", config.norm == NormKind::kLayer ? "layer" : "rms"},
                 {"eps", fmt::format("{}", config.norm_eps)},
                 {"ffn", s.gated_ffn ? "gated" : "plain"},
                 {"biases", biases_ ? "all" : "none"},
                 {"base_model", options.model}};
  }

  // The proxy of a layer, with the channels `chosen`.
  void Add(int layer, const LayerWeights& w, const std::vector<int32_t>& chosen, Backend& be) {
    layer_ = layer;
    AddVector("norm.w", w.ffn_norm.weight);
    if (config_.norm == NormKind::kLayer) AddVector("norm.b", w.ffn_norm.bias);
    if (config_.shape.gated_ffn) AddHalf("gate", w.gate, chosen, be);
    AddHalf("up", w.up, chosen, be);
    const Tensor pruned = ColumnsOf(w.down.weight, chosen);
    const LowRank down = TruncatedSvd(pruned.view(), rank_, be);
    AddMatrix("down", down.in.view());
    if (biases_) AddDownBias(w.down.bias, down.out.view());
  }

  void Write(const std::string& path) const { WriteSafetensors(path, "tune", entries_, metadata_); }

 private:
  void AddHalf(const std::string& name, const Linear& w, const std::vector<int32_t>& chosen, Backend& be) {
    const Tensor pruned = RowsOf(w.weight, chosen);
    const LowRank low = TruncatedSvd(pruned.view(), rank_, be);
    AddMatrix(name + ".in", low.in.view());
    AddMatrix(name + ".out", low.out.view());
    if (!biases_) return;
    const Tensor bias = ColumnsOf(w.bias, chosen);
    AddVector(name + ".b", bias.view());
  }
  // The bias b in the coordinates of the columns of `out` [d, r], and the length of what they do not reach.
  void AddDownBias(const TensorView& bias, const TensorView& out) {
    const std::span<const float> b = bias.Row<float>(0);
    Tensor inside = Tensor::Zeros(DType::kF32, 1, out.cols);
    std::vector<float> rest(b.begin(), b.end());
    for (int64_t j = 0; j < out.cols; ++j) {
      const auto c = static_cast<size_t>(j);
      double sum = 0;
      for (size_t i = 0; i < b.size(); ++i) sum += double{b[i]} * out.Row<float>(static_cast<int64_t>(i))[c];
      inside.mutable_view().Row<float>(0)[c] = static_cast<float>(sum);
      for (size_t i = 0; i < b.size(); ++i)
        rest[i] -= static_cast<float>(sum * out.Row<float>(static_cast<int64_t>(i))[c]);
    }
    AddVector("down.b", inside.view());
    const float length = Length(rest);
    AddVector("down.rest", TensorView(&length, DType::kF32, 1, 1));
  }

  void AddVector(const std::string& part, const TensorView& row) {
    Store(part, DType::kF32, {row.cols}, row);
  }
  void AddMatrix(const std::string& part, const TensorView& w) {
    Store(part, options_.type, {w.rows, w.cols}, w);
  }
  void Store(const std::string& part, DType type, std::vector<int64_t> shape, const TensorView& values) {
    Tensor& stored = stored_.emplace_back(type, values.rows, values.cols);
    const MutableTensorView to = stored.mutable_view();
    for (int64_t i = 0; i < values.rows; ++i) QuantizeRow(type, values.Row<float>(i), to.RowBytes(i));
    entries_.push_back({fmt::format("spts.{}.{}", layer_, part), type, std::move(shape),
                        std::span<const std::byte>(to.data, static_cast<size_t>(stored.bytes()))});
  }

  const ModelConfig& config_;
  const FfnProxyOptions& options_;
  int64_t rank_;
  bool biases_ = false;
  int layer_ = 0;
  std::map<std::string, std::string> metadata_;
  std::deque<Tensor> stored_;
  std::vector<SafetensorsEntry> entries_;
};

FfnProxyResult Sizes(const ModelShape& s, const FfnProxyOptions& options) {
  const SptsProxySize preset = SptsProxySizeFor(s);
  FfnProxyResult sizes;
  sizes.channels = options.channels > 0 ? options.channels : preset.channels;
  if (sizes.channels > s.NarrowestFfn())
    throw Error("a proxy of {} channels: the model's FFNs have {}", sizes.channels, s.NarrowestFfn());
  const int64_t most = std::min(s.hidden, sizes.channels);
  sizes.rank = options.rank > 0 ? options.rank : std::min(preset.rank, most);
  if (sizes.rank > most) {
    throw Error("a proxy of rank {}: matrices of {} channels and a hidden size of {} have rank {} at most",
                sizes.rank, sizes.channels, s.hidden, most);
  }
  return sizes;
}

// Model layers whose every weight the host can read.
void CheckModel(const Engine& engine) {
  const ModelShape& s = engine.model().config().shape;
  if (s.layer_count() < 2)
    throw Error("the model has one layer, of which a prefill computes a single row: no FFN needs a proxy");
  if (s.HasMixtures()) throw Error("the model has mixtures of experts, which no low-rank FFN predicts");
  if (s.NarrowestFfn() == 0) throw Error("layers of the model have no FFN that a proxy could predict");
  if (s.post_norms)
    throw Error(
        "this model normalises what its FFNs add, so all their outputs have much the same size, and "
        "SPTS's proxies predict that size");
  if (engine.model().weights().layers.front().up.weight.memory != nullptr)
    throw Error("proxies of FFNs are made with a model in host memory, not on the {} backend",
                engine.backend().name());
}

// The channels of the largest importance, ascending.
std::vector<int32_t> LargestChannels(const std::vector<float>& importance, int64_t count, Backend& be) {
  const TensorView scores(importance.data(), DType::kF32, 1, std::ssize(importance));
  return be.TopK(scores, count).ToRows();
}

FfnProxyAgreement Agreement(std::span<const float> proxy, std::span<const float> ffn, Backend& be) {
  const int64_t rows = std::ssize(ffn);
  const auto top = [&](std::span<const float> norms) {
    return be.TopK(TensorView(norms.data(), DType::kF32, 1, rows),
                   static_cast<int64_t>(std::ceil(kTop * static_cast<double>(rows))));
  };
  const TokenSet of_ffn = top(ffn);
  const std::vector<int32_t> of_proxy = top(proxy).ToRows();
  const auto both =
      std::count_if(of_proxy.begin(), of_proxy.end(), [&](int32_t row) { return of_ffn.Contains(row); });
  return {SpearmanRho(proxy, ffn), static_cast<double>(both) / static_cast<double>(of_ffn.size())};
}

}  // namespace

FfnProxyResult MakeFfnProxies(const Engine& engine, std::span<const int32_t> tokens, const std::string& path,
                              const FfnProxyOptions& options) {
  CheckModel(engine);
  const ModelConfig& config = engine.model().config();
  const std::vector<LayerWeights>& weights = engine.model().weights().layers;
  FfnProxyResult result = Sizes(config.shape, options);
  const auto progress = [&](double share) {
    if (options.progress) options.progress(share);
  };
  const FfnSample sample = SampleFfnInputs(
      engine, tokens, options.tokens, [&](double share) { progress(kSampleShare * share); },
      options.cancelled);
  result.calibrated = sample.calibrated;
  result.held_out = sample.layers.front().rows() - sample.calibrated;

  const std::unique_ptr<Backend> exact =
      MakeBackend("cpu", {.threads = engine.backend().threads(), .exact = true});
  ProxyWriter writer(config, options, result);
  std::vector<std::vector<float>> norms;  // by layer
  for (size_t l = 0; l < weights.size(); ++l) {
    const PlainFfn ffn(weights[l], static_cast<float>(config.norm_eps), *exact);
    Study study = ffn.Of(sample, l, options.cancelled);
    writer.Add(static_cast<int>(l), weights[l], LargestChannels(study.importance, result.channels, *exact),
               *exact);
    norms.push_back(std::move(study.norms));
    progress(kSampleShare +
             (1 - kSampleShare) * static_cast<double>(l + 1) / static_cast<double>(weights.size()));
  }
  writer.Write(path);

  const SptsFile file(path, config.shape);  // what a run will read, in the arithmetic of a run
  const std::unique_ptr<Backend> backend = engine.NewBackend();
  for (size_t l = 0; l < weights.size(); ++l) {
    std::vector<float> scores(norms[l].size());
    file.proxy(static_cast<int>(l)).Score(sample.HeldOut(l), *backend, scores);
    result.layers.push_back(Agreement(scores, norms[l], *backend));
  }
  return result;
}

}  // namespace coppice
