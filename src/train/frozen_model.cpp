#include "train/frozen_model.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "formats/quants.h"
#include "train/frozen_model_torch.h"

namespace coppice {

namespace {

// Copies the rows of a matrix of any type as contiguous fp32 values.
void CopyRows(const TensorView& view, float* out) {
  for (int64_t r = 0; r < view.rows; ++r) {
    DequantizeRow(view.dtype, view.RowBytes(r), {out + r * view.cols, static_cast<size_t>(view.cols)});
  }
}

// A tensor over the same memory if the matrix is contiguous fp32, since nothing here writes to weights; else
// a copy.
at::Tensor ToTorch(const TensorView& view) {
  if (view.empty()) return {};
  if (view.dtype == DType::kF32 && view.stride == BytesOf(DType::kF32, view.cols)) {
    return at::from_blob(const_cast<std::byte*>(view.data), {view.rows, view.cols}, at::kFloat);
  }
  at::Tensor copy = at::empty({view.rows, view.cols}, at::kFloat);
  CopyRows(view, copy.data_ptr<float>());
  return copy;
}

at::Tensor ToTorchVector(const TensorView& view) {
  return view.empty() ? at::Tensor() : ToTorch(view).flatten();
}

TorchLinear ToTorch(const Linear& linear) { return {ToTorch(linear.weight), ToTorchVector(linear.bias)}; }
TorchNorm ToTorch(const Norm& norm) { return {ToTorchVector(norm.weight), ToTorchVector(norm.bias)}; }

std::vector<float> ToVector(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().to(at::kFloat).contiguous();
  const float* data = dense.data_ptr<float>();
  return {data, data + dense.numel()};
}

}  // namespace

FrozenModel::FrozenModel(const ModelConfig& config, std::shared_ptr<const Weights> weights) {
  if (config.head_norms || config.shape.post_norms || !config.pre_norms || config.embedding_scale != 1 ||
      config.logit_scale != 1 || config.query_temperature.beta > 0 || config.ffn_biases ||
      config.shape.HasStates() || (!config.shape.alibi && config.shape.layer(0).rope == kNoRope))
    throw Error("[train] models of the architecture '{}' cannot be trained for", config.shape.architecture);
  const std::vector<LayerShape>& layers = config.shape.layers;
  if (std::ranges::any_of(layers, [&](const LayerShape& layer) { return layer != layers.front(); }))
    throw Error("[train] models whose layers differ in size, window or rope cannot be trained for");
  auto torch = std::make_unique<Torch>();
  torch->config = config;
  torch->weights = std::move(weights);
  for (const LayerWeights& w : torch->weights->layers) {
    torch->layers.push_back({ToTorch(w.attention_norm), ToTorch(w.ffn_norm), ToTorch(w.query), ToTorch(w.key),
                             ToTorch(w.value), ToTorch(w.output), ToTorch(w.gate), ToTorch(w.up),
                             ToTorch(w.down)});
  }
  torch->embedding_norm = ToTorch(torch->weights->embedding_norm);
  torch->final_norm = ToTorch(torch->weights->final_norm);
  torch->head = ToTorch(torch->weights->head);
  if (config.shape.alibi) {
    torch->alibi_slopes = at::tensor(AlibiSlopes(layers.front().heads)).reshape({-1, 1, 1});
  }
  torch_ = std::move(torch);
}

FrozenModel::~FrozenModel() = default;

const ModelConfig& FrozenModel::config() const { return torch_->config; }

at::Tensor FrozenModel::Torch::Embed(std::span<const int32_t> tokens) const {
  const TensorView& table = weights->embedding;
  at::Tensor x = at::empty({static_cast<int64_t>(tokens.size()), table.cols}, at::kFloat);
  for (size_t i = 0; i < tokens.size(); ++i) {
    COPPICE_CHECK(tokens[i] >= 0 && tokens[i] < table.rows);
    CopyRows(table.Rows(tokens[i], 1), x.data_ptr<float>() + static_cast<int64_t>(i) * table.cols);
  }
  return embedding_norm.weight.defined() ? Norm(embedding_norm, x) : x;
}

std::vector<float> FrozenModel::Logits(std::span<const int32_t> tokens) const {
  const at::NoGradGuard frozen;
  const TorchPass pass(*torch_, static_cast<int64_t>(tokens.size()));
  at::Tensor x = torch_->Embed(tokens);
  for (int l = 0; l < torch_->config.shape.layer_count(); ++l) x = pass.Layer(l, x, {});
  return ToVector(torch_->Logits(x));
}

at::Tensor LogLikelihood(const FrozenModel::Torch& model, const TrainingText& text, const at::Tensor& x) {
  const auto n = static_cast<int64_t>(text.tokens.size());
  const at::Tensor rows = x.narrow(0, text.prompt - 1, n - text.prompt);
  const std::vector<int64_t> wanted(text.tokens.begin() + text.prompt, text.tokens.end());
  return at::log_softmax(model.Logits(rows), -1).gather(-1, at::tensor(wanted, at::kLong).unsqueeze(1)).sum();
}

Marked FrozenModel::Mark(const TrainingText& text, std::span<const int> layers) const {
  const auto n = static_cast<int64_t>(text.tokens.size());
  COPPICE_CHECK(text.prompt >= 1 && text.prompt < n && !layers.empty());
  const TorchPass pass(*torch_, n - 1);  // the last token predicts nothing
  at::Tensor x = torch_->Embed(std::span(text.tokens).first(static_cast<size_t>(n - 1)));
  std::vector<at::Tensor> entering;
  for (int l = 0; l < torch_->config.shape.layer_count(); ++l) {
    if (entering.size() < layers.size() && l == layers[entering.size()]) {
      // Nothing before this layer needs a gradient.
      if (entering.empty()) x = x.detach().requires_grad_(true);
      entering.push_back(x);
    }
    x = pass.Layer(l, x, {});
  }
  const at::Tensor likelihood = LogLikelihood(*torch_, text, x);
  const std::vector<at::Tensor> gradients = torch::autograd::grad({likelihood}, entering);

  Marked marked;
  marked.log_likelihood = likelihood.item<double>();
  for (size_t s = 0; s < entering.size(); ++s) {
    const at::Tensor hidden = entering[s].detach().narrow(0, 0, text.prompt);
    at::Tensor saliency = (gradients[s].narrow(0, 0, text.prompt) * hidden).sum(-1).abs();
    const double largest = saliency.max().item<double>();
    if (!std::isfinite(largest) || !std::isfinite(marked.log_likelihood)) {
      throw Error("[train] saliency before layer {} is not finite: this model's numbers overflow fp32",
                  layers[s]);
    }
    if (largest > 0) saliency = saliency / largest;
    marked.hidden.push_back(ToVector(hidden));
    marked.saliency.push_back(ToVector(saliency));
  }
  return marked;
}

void SetTorchThreads(int threads) { at::set_num_threads(threads); }

}  // namespace coppice
