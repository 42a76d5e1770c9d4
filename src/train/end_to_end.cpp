#include "train/end_to_end.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "kernels/backend.h"
#include "policies/stages.h"
#include "train/frozen_model_torch.h"
#include "train/sdtp_net_torch.h"

namespace coppice {

namespace {

// -log(-log(u)) for u in (0, 1).
double GumbelNoise(Random& random) {
  return -std::log(-std::log(random.Uniform() * (1 - 0x1p-53) + 0x1p-54));
}

// The masks of one text, stage after stage.
class Masks {
 public:
  Masks(const PrunedPass& pass, int64_t prompt, int64_t rows, Random& random)
      : pass_(pass), prompt_(prompt), rows_(rows), random_(random), backend_(MakeBackend("reference", {})) {
    alive_.resize(static_cast<size_t>(prompt));
    std::iota(alive_.begin(), alive_.end(), 0);
  }

  // M_s [rows] from the scores [prompt] before stage s. Each mask builds on the previous one.
  at::Tensor Next(int stage, const at::Tensor& scores) {
    Observation seen;
    seen.prompt_tokens = prompt_;
    seen.positions = alive_;
    const SdtpStays stays = StaysAt(pass_.config, stage, seen);
    const at::Tensor mask = pass_.mask == MaskKind::kTopK ? TopK(scores, stays) : Gumbel(scores, stays);
    prompt_mask_ = prompt_mask_.defined() ? mask * prompt_mask_ : mask;
    return at::cat({prompt_mask_, at::ones({rows_ - prompt_}, at::kFloat)});
  }

  const at::Tensor& prompt_mask() const { return prompt_mask_; }  // [prompt]
  const std::vector<int32_t>& alive() const { return alive_; }    // positions

 private:
  at::Tensor TopK(const at::Tensor& scores, const SdtpStays& stays) {
    const at::Tensor fixed = scores.detach().contiguous();
    const float* score = fixed.data_ptr<float>();
    std::vector<float> of_alive;
    for (const int32_t p : alive_) of_alive.push_back(score[p]);
    const TokenSet best = BestRows(of_alive, stays.keep, stays.first, stays.last, *backend_);
    const auto rows = static_cast<int64_t>(alive_.size());
    float last_kept = 0;
    bool any = false;
    std::vector<int32_t> kept;
    for (const int32_t row : best.ToRows()) {
      kept.push_back(alive_[static_cast<size_t>(row)]);
      if (row < stays.first || row >= rows - stays.last) continue;
      const float s = of_alive[static_cast<size_t>(row)];
      last_kept = any ? std::min(last_kept, s) : s;
      any = true;
    }
    // If no token could be chosen there is nothing to learn: mask and gradient are constant.
    return Mask(std::move(kept), any ? at::sigmoid(scores - last_kept) : at::Tensor(), stays);
  }

  at::Tensor Gumbel(const at::Tensor& scores, const SdtpStays& stays) {
    std::vector<float> noise(static_cast<size_t>(prompt_));
    // The softmax of two channels with Gumbel noise is the sigmoid of the channels' difference plus the
    // noises' difference.
    for (float& n : noise) {
      // Separate statements, because operands have no defined order.
      const double keep = GumbelNoise(random_);
      const double drop = GumbelNoise(random_);
      n = static_cast<float>(keep - drop);
    }
    const at::Tensor soft = at::sigmoid(scores + at::tensor(noise));
    const at::Tensor fixed = soft.detach().contiguous();
    std::vector<int32_t> kept;
    for (size_t row = 0; row < alive_.size(); ++row) {
      const int32_t p = alive_[row];
      if (Protected(static_cast<int64_t>(row), stays) || fixed.data_ptr<float>()[p] > 0.5f) kept.push_back(p);
    }
    return Mask(std::move(kept), soft, stays);
  }

  bool Protected(int64_t row, const SdtpStays& stays) const {
    return row < stays.first || row >= static_cast<int64_t>(alive_.size()) - stays.last;
  }

  // 1 for `kept`, 0 for other tokens, with the gradient of `soft` for tokens that are not protected.
  at::Tensor Mask(std::vector<int32_t> kept, const at::Tensor& soft, const SdtpStays& stays) {
    std::vector<float> hard(static_cast<size_t>(prompt_), 0.0f);
    for (const int32_t p : kept) hard[static_cast<size_t>(p)] = 1;
    std::vector<float> free(static_cast<size_t>(prompt_), 0.0f);
    for (size_t row = 0; row < alive_.size(); ++row) {
      if (!Protected(static_cast<int64_t>(row), stays)) free[static_cast<size_t>(alive_[row])] = 1;
    }
    alive_ = std::move(kept);
    const at::Tensor mask = at::tensor(hard);
    return soft.defined() ? mask + (soft - soft.detach()) * at::tensor(free) : mask;
  }

  const PrunedPass& pass_;
  int64_t prompt_;
  int64_t rows_;
  Random& random_;
  std::unique_ptr<Backend> backend_;
  std::vector<int32_t> alive_;
  at::Tensor prompt_mask_;
};

// Calls at_stage(s, scores of the prompt, masks) after each mask is made. Returns the output of the last
// layer. `torch_pass` must outlive the gradients.
template <typename AtStage>
at::Tensor RunPruned(const PrunedPass& pass, const TorchPass& torch_pass, const TrainingText& text,
                     const SdtpNet& net, Random& random, const AtStage& at_stage) {
  const FrozenModel::Torch& model = pass.model.torch();
  const std::vector<int>& layers = pass.config.layers;
  const auto rows = static_cast<int64_t>(text.tokens.size()) - 1;
  COPPICE_CHECK(static_cast<int>(layers.size()) == net.stages());
  Masks masks(pass, text.prompt, rows, random);
  at::Tensor x = model.Embed(std::span(text.tokens).first(static_cast<size_t>(rows)));
  at::Tensor keep;
  for (int l = 0; l < model.config.shape.layer_count(); ++l) {
    if (const int stage = StageOf(layers, l); stage >= 0) {
      const at::Tensor scores = net.torch().Score(stage, x.narrow(0, 0, text.prompt));
      keep = masks.Next(stage, scores);
      at_stage(stage, scores, masks);
    }
    x = torch_pass.Layer(l, x, keep);
  }
  return x;
}

// log p over the vocabulary, [response, vocab], at the positions that predict the response.
at::Tensor ResponseLogProbabilities(const FrozenModel::Torch& model, const TrainingText& text,
                                    const at::Tensor& x) {
  const auto n = static_cast<int64_t>(text.tokens.size());
  return at::log_softmax(model.Logits(x.narrow(0, text.prompt - 1, n - text.prompt)), -1);
}

at::Tensor DenseLogProbabilities(const FrozenModel::Torch& model, const TorchPass& torch_pass,
                                 const TrainingText& text) {
  const at::NoGradGuard frozen;
  at::Tensor x = model.Embed(std::span(text.tokens).first(text.tokens.size() - 1));
  for (int l = 0; l < model.config.shape.layer_count(); ++l) x = torch_pass.Layer(l, x, {});
  return ResponseLogProbabilities(model, text, x);
}

}  // namespace

SdtpLosses LearnEndToEnd(const PrunedPass& pass, const TrainingText& text,
                         std::span<const std::vector<float>> saliency, const SdtpLossWeights& weights,
                         double weight, Random random, SdtpNet& net) {
  const FrozenModel::Torch& model = pass.model.torch();
  const TorchPass torch_pass(model, static_cast<int64_t>(text.tokens.size()) - 1);
  const double share = 1.0 / net.stages();
  SdtpLosses losses;
  at::Tensor total;
  const auto add = [&](const at::Tensor& loss, double factor, double& report, double mean) {
    report += mean * loss.item<double>();
    if (factor == 0) return;
    const at::Tensor part = loss * (factor * mean);
    total = total.defined() ? total + part : part;
  };
  const at::Tensor x = RunPruned(
      pass, torch_pass, text, net, random, [&](int stage, const at::Tensor& scores, const Masks& masks) {
        const StageLosses stage_losses = LossesOfStage(scores, saliency[static_cast<size_t>(stage)], random);
        add(stage_losses.mse, weights.mse, losses.mse, share);
        if (stage_losses.rank.defined()) add(stage_losses.rank, weights.rank, losses.rank, share);
        const double wanted = std::pow(pass.config.r, stage + 1);
        add((masks.prompt_mask().mean() - wanted).square(), weights.ratio, losses.ratio, share);
      });
  const at::Tensor log_p = ResponseLogProbabilities(model, text, x);
  const std::vector<int64_t> response(text.tokens.begin() + text.prompt, text.tokens.end());
  add(-log_p.gather(-1, at::tensor(response).unsqueeze(1)).mean(), 1, losses.answer, 1);
  if (weights.distill != 0) {
    const at::Tensor dense = DenseLogProbabilities(model, torch_pass, text);
    add((dense.exp() * (dense - log_p)).sum(-1).mean(), weights.distill, losses.distill, 1);
  }
  if (total.requires_grad()) torch::autograd::backward({total * weight}, {});
  return losses;
}

PrunedLogits SimulatePruning(const PrunedPass& pass, const TrainingText& text, const SdtpNet& net) {
  const at::NoGradGuard frozen;
  const FrozenModel::Torch& model = pass.model.torch();
  const auto rows = static_cast<int64_t>(text.tokens.size()) - 1;
  const TorchPass torch_pass(model, rows);
  Random unused(0);
  PrunedLogits result;
  const at::Tensor x =
      RunPruned(pass, torch_pass, text, net, unused,
                [&](int, const at::Tensor&, const Masks& masks) { result.kept.push_back(masks.alive()); });
  const at::Tensor logits = model.Logits(x.narrow(0, text.prompt - 1, rows - text.prompt + 1)).contiguous();
  result.logits.assign(logits.data_ptr<float>(), logits.data_ptr<float>() + logits.numel());
  return result;
}

}  // namespace coppice
