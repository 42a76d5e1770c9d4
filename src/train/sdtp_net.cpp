#include "train/sdtp_net.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "train/sdtp_net_torch.h"

namespace coppice {

namespace {

constexpr size_t kPerStage = 6;
constexpr double kNormEps = 1e-5;     // the engine's
constexpr int64_t kMostPairs = 4096;  // per text and stage
// Weight decay; from DynamicViT, like eps and the choice of decayed parameters.
constexpr double kDecay = 0.05;
constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr double kAdamEps = 1e-8;
constexpr double kLongestGradient = 1;
constexpr uint64_t kStart = 1;  // key of the initial weights' random stream

at::Tensor Values(std::span<const float> values, std::vector<int64_t> shape) {
  return at::tensor(at::ArrayRef<float>(values.data(), values.size())).reshape(shape);
}

std::vector<float> FloatsOf(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().contiguous();
  const float* data = dense.data_ptr<float>();
  return {data, data + dense.numel()};
}

// Pairs (i, j) whose targets differ: all pairs, or those among kMostPairs random ones.
struct Pairs {
  std::vector<int64_t> i, j;
  std::vector<float> sign;

  void Add(int64_t a, int64_t b, std::span<const float> targets) {
    const float difference = targets[static_cast<size_t>(a)] - targets[static_cast<size_t>(b)];
    if (difference == 0) return;
    i.push_back(a);
    j.push_back(b);
    sign.push_back(difference > 0 ? 1.0f : -1.0f);
  }
};

Pairs DrawPairs(std::span<const float> targets, Random& random) {
  const auto n = static_cast<int64_t>(targets.size());
  Pairs pairs;
  if (n * (n - 1) / 2 <= kMostPairs) {
    for (int64_t a = 1; a < n; ++a) {
      for (int64_t b = 0; b < a; ++b) pairs.Add(a, b, targets);
    }
    return pairs;
  }
  for (int64_t k = 0; k < kMostPairs; ++k) {
    const int64_t a = random.Below(n);
    const int64_t b = random.Below(n - 1);
    pairs.Add(a, b + (b >= a ? 1 : 0), targets);
  }
  return pairs;
}

}  // namespace

void SdtpLosses::Add(const SdtpLosses& other, double weight) {
  mse += weight * other.mse;
  rank += weight * other.rank;
  answer += weight * other.answer;
  distill += weight * other.distill;
  ratio += weight * other.ratio;
}

StageLosses LossesOfStage(const at::Tensor& score, std::span<const float> targets, Random& random) {
  StageLosses losses;
  losses.mse = (at::sigmoid(score) - Values(targets, {-1})).square().mean();
  const Pairs pairs = DrawPairs(targets, random);
  if (!pairs.i.empty()) {
    const at::Tensor ahead =
        score.index_select(0, at::tensor(pairs.i)) - score.index_select(0, at::tensor(pairs.j));
    losses.rank = at::softplus(-ahead * Values(pairs.sign, {-1})).mean();
  }
  return losses;
}

SdtpNet::SdtpNet(int64_t d, int64_t h, int stages, uint64_t seed) : torch_(std::make_unique<Torch>()) {
  COPPICE_CHECK(d > 0 && h > 0 && stages > 0);
  torch_->d = d;
  for (int s = 0; s < stages; ++s) {
    Random random = RandomAt({seed, kStart, static_cast<uint64_t>(s)});
    const auto add = [&](const char* part, std::vector<int64_t> shape, double mean, int64_t inputs) {
      at::Tensor value = at::empty(shape, at::kFloat);
      const double bound = inputs > 0 ? 1 / std::sqrt(static_cast<double>(inputs)) : 0;
      float* data = value.data_ptr<float>();
      for (int64_t i = 0; i < value.numel(); ++i) {
        data[i] = static_cast<float>(mean + bound * (2 * random.Uniform() - 1));
      }
      torch_->parameters.push_back({.name = fmt::format("sdtp.{}.{}", s, part),
                                    .value = value.requires_grad_(true),
                                    .mean = at::zeros_like(value),
                                    .square = at::zeros_like(value),
                                    .decays = shape.size() > 1});
    };
    add("ln.w", {d}, 1, 0);
    add("ln.b", {d}, 0, 0);
    add("fc1.w", {h, d}, 0, d);
    add("fc1.b", {h}, 0, d);
    add("fc2.w", {2, h}, 0, h);
    add("fc2.b", {2}, 0, h);
  }
}

SdtpNet::~SdtpNet() = default;

int SdtpNet::stages() const { return static_cast<int>(torch_->parameters.size() / kPerStage); }
int64_t SdtpNet::steps() const { return torch_->steps; }

at::Tensor SdtpNet::Torch::Score(int stage, const at::Tensor& x) const {
  const auto part = [&](size_t i) { return parameters[static_cast<size_t>(stage) * kPerStage + i].value; };
  const at::Tensor normed = at::layer_norm(x, {d}, part(0), part(1), kNormEps);
  const at::Tensor inner = at::gelu(at::linear(normed, part(2), part(3)), "tanh");
  const at::Tensor pi = at::linear(inner, part(4), part(5));
  return pi.select(-1, 0) - pi.select(-1, 1);
}

std::vector<float> SdtpNet::Scores(int stage, std::span<const float> x) const {
  const at::NoGradGuard fixed;
  return FloatsOf(torch_->Score(stage, Values(x, {-1, torch_->d})));
}

SdtpLosses SdtpNet::Learn(std::span<const StageTargets> stages_seen, const SdtpLossWeights& weights,
                          double weight, Random random) {
  COPPICE_CHECK(static_cast<int>(stages_seen.size()) == stages());
  SdtpLosses losses;
  const double share = 1.0 / stages();
  for (int s = 0; s < stages(); ++s) {
    const StageTargets& targets = stages_seen[static_cast<size_t>(s)];
    const StageLosses stage =
        LossesOfStage(torch_->Score(s, Values(targets.hidden, {-1, torch_->d})), targets.saliency, random);
    at::Tensor total = weights.mse * stage.mse;
    losses.mse += share * stage.mse.item<double>();
    if (stage.rank.defined()) {
      total = total + weights.rank * stage.rank;
      losses.rank += share * stage.rank.item<double>();
    }
    torch::autograd::backward({total * (weight * share)}, {});
  }
  return losses;
}

void SdtpNet::Step(double learning_rate) {
  const at::NoGradGuard fixed;
  double squares = 0;
  for (const Torch::Parameter& p : torch_->parameters) {
    if (p.value.grad().defined()) squares += p.value.grad().square().sum().item<double>();
  }
  if (!std::isfinite(squares)) {
    throw Error("[train] the gradient of step {} is not finite: try a smaller learning rate",
                torch_->steps + 1);
  }
  const double scale = std::min(1.0, kLongestGradient / (std::sqrt(squares) + 1e-12));
  const auto t = static_cast<double>(++torch_->steps);
  const double mean_bias = 1 - std::pow(kBeta1, t);
  const double square_bias = 1 - std::pow(kBeta2, t);
  for (Torch::Parameter& p : torch_->parameters) {
    const at::Tensor gradient = p.value.grad().defined() ? p.value.grad() * scale : at::zeros_like(p.value);
    p.value.mutable_grad() = at::Tensor();
    p.mean.mul_(kBeta1).add_(gradient * (1 - kBeta1));
    p.square.mul_(kBeta2).add_(gradient.square() * (1 - kBeta2));
    if (p.decays) p.value.mul_(1 - learning_rate * kDecay);
    const at::Tensor move = p.mean / mean_bias / ((p.square / square_bias).sqrt() + kAdamEps);
    p.value.sub_(move * learning_rate);
  }
}

std::vector<NamedArray> SdtpNet::Weights() const {
  std::vector<NamedArray> arrays;
  for (const Torch::Parameter& p : torch_->parameters) {
    arrays.push_back({p.name, p.value.sizes().vec(), FloatsOf(p.value)});
  }
  return arrays;
}

std::vector<NamedArray> SdtpNet::State() const {
  std::vector<NamedArray> arrays = Weights();
  for (const Torch::Parameter& p : torch_->parameters) {
    arrays.push_back({"mean." + p.name, p.mean.sizes().vec(), FloatsOf(p.mean)});
    arrays.push_back({"square." + p.name, p.square.sizes().vec(), FloatsOf(p.square)});
  }
  return arrays;
}

bool SdtpNet::Restore(std::span<const NamedArray> state, int64_t steps) {
  const at::NoGradGuard fixed;
  const auto find = [&](const std::string& name, const at::Tensor& like) -> const NamedArray* {
    const auto it = std::ranges::find(state, name, &NamedArray::name);
    return it != state.end() && it->shape == like.sizes().vec() ? &*it : nullptr;
  };
  std::vector<std::pair<at::Tensor, const NamedArray*>> found;
  for (Torch::Parameter& p : torch_->parameters) {
    found.emplace_back(p.value, find(p.name, p.value));
    found.emplace_back(p.mean, find("mean." + p.name, p.mean));
    found.emplace_back(p.square, find("square." + p.name, p.square));
  }
  for (const auto& [tensor, array] : found) {
    if (array == nullptr) return false;
  }
  for (auto& [tensor, array] : found) tensor.copy_(Values(array->values, array->shape));
  torch_->steps = steps;
  return true;
}

}  // namespace coppice
