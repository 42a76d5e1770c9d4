// Losses computed by hand, AdamW by its formula, and scores equal to those of the engine with the written
// file.
#include "train/sdtp_net.h"

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "formats/safetensors_writer.h"
#include "kernels/backend.h"
#include "policies/methods/sdtp_predictor.h"
#include "test_files.h"
#include "train/sdtp_net_torch.h"

namespace coppice {
namespace {

constexpr int64_t kHidden = 12;

std::vector<float> Numbers(size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& v : values) v = static_cast<float>(2 * random.Uniform() - 1);
  return values;
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double Softplus(double x) { return std::log1p(std::exp(x)); }

TEST(SdtpNet, LossesByHand) {
  const std::vector<float> score = {0.5f, -1, 2};
  const std::vector<float> saliency = {0.2f, 1, 0.2f};
  Random random(1);
  const StageLosses losses = LossesOfStage(at::tensor(score), saliency, random);
  double mse = 0;
  for (size_t i = 0; i < 3; ++i) mse += std::pow(Sigmoid(score[i]) - saliency[i], 2) / 3;
  EXPECT_NEAR(losses.mse.item<double>(), mse, 1e-6);
  // The pairs (1, 0) and (1, 2); 0 and 2 tie.
  EXPECT_NEAR(losses.rank.item<double>(), (Softplus(-(-1 - 0.5)) + Softplus(-(-1 - 2.0))) / 2, 1e-6);
  const std::vector<float> flat = {0.2f, 0.2f, 0.2f};
  EXPECT_FALSE(LossesOfStage(at::tensor(score), flat, random).rank.defined());
}

// With many tokens, 4,096 pairs are sampled: the mean stays near that of all pairs, and equal samples give
// equal results.
TEST(SdtpNet, ManyPairsAreSampled) {
  const std::vector<float> score = Numbers(600, 1);
  const std::vector<float> saliency = Numbers(600, 2);
  double sum = 0;
  for (size_t i = 0; i < 600; ++i) {
    for (size_t j = 0; j < i; ++j) {
      const double sign = saliency[i] > saliency[j] ? 1 : -1;
      sum += Softplus(-(score[i] - score[j]) * sign);
    }
  }
  const auto rank = [&](uint64_t seed) {
    Random random(seed);
    return LossesOfStage(at::tensor(score), saliency, random).rank.item<double>();
  };
  EXPECT_NEAR(rank(7), sum / (600 * 599 / 2), 0.02);
  EXPECT_EQ(rank(7), rank(7));
  EXPECT_NE(rank(7), rank(8));
}

TEST(SdtpNet, TheEngineReadsTheSameScores) {
  const TempFolder folder;
  SdtpNet net(kHidden, 5, 2, 3);
  std::vector<SafetensorsEntry> entries;
  const std::vector<NamedArray> arrays = net.Weights();
  for (const NamedArray& a : arrays) {
    entries.push_back({a.name, DType::kF32, a.shape, std::as_bytes(std::span(a.values))});
  }
  const std::string path = folder.Path("p.safetensors");
  WriteSafetensors(path, "test", entries,
                   {{"layers", "1,2"},
                    {"stages", "2"},
                    {"r", "0.9"},
                    {"first", "4"},
                    {"local", "0.1"},
                    {"base_model", ""}});
  ModelShape shape;
  shape.layers.resize(4);
  shape.hidden = kHidden;
  const SdtpFile file(path, shape);
  const std::vector<float> x = Numbers(7 * kHidden, 4);
  const auto be = MakeBackend("reference", {});
  for (int s = 0; s < 2; ++s) {
    std::vector<float> want(7);
    file.predictors()[static_cast<size_t>(s)].Score(TensorView(x.data(), DType::kF32, 7, kHidden), *be, want);
    const std::vector<float> got = net.Scores(s, x);
    ASSERT_EQ(got.size(), 7u);
    for (size_t i = 0; i < 7; ++i) EXPECT_NEAR(got[i], want[i], 1e-5);
  }
}

// One step on a loss with a known gradient: AdamW's first step moves by lr sign(g), after decay on matrices
// only.
TEST(SdtpNet, FirstStepOfAdamW) {
  SdtpNet net(kHidden, 5, 1, 3);
  const std::vector<NamedArray> before = net.Weights();
  torch::autograd::backward(
      {1e-3 * (net.torch().parameters[2].value.sum() - net.torch().parameters[3].value.sum())}, {});
  net.Step(0.01);
  const std::vector<NamedArray> after = net.Weights();
  const double eps = 1e-8 / 1e-3;
  for (size_t i = 0; i < after.size(); ++i) {
    for (size_t j = 0; j < after[i].values.size(); ++j) {
      const double was = before[i].values[j];
      const bool matrix = after[i].shape.size() == 2;
      const double step = i == 2 ? 0.01 / (1 + eps) : i == 3 ? -0.01 / (1 + eps) : 0;
      EXPECT_NEAR(after[i].values[j], was * (matrix ? 1 - 0.01 * 0.05 : 1) - step, 1e-6) << after[i].name;
    }
  }
}

// A gradient with norm above 1 is clipped to 1, as the second moment shows.
TEST(SdtpNet, GradientsAreClipped) {
  SdtpNet net(kHidden, 5, 1, 3);
  torch::autograd::backward({100 * net.torch().parameters[2].value.sum()}, {});
  net.Step(0.01);
  double squares = 0;
  for (const NamedArray& a : net.State()) {
    if (!a.name.starts_with("square.")) continue;
    for (const float v : a.values) squares += v / (1 - 0.999);
  }
  EXPECT_NEAR(squares, 1, 1e-4);
}

std::vector<StageTargets> Targets(uint64_t seed) {
  std::vector<StageTargets> targets;
  for (uint64_t s = 0; s < 2; ++s) {
    targets.push_back({Numbers(40 * kHidden, seed + s), {}});
    for (size_t i = 0; i < 40; ++i)
      targets[s].saliency.push_back(0.5f + 0.5f * targets[s].hidden[i * kHidden + s]);
  }
  return targets;
}

TEST(SdtpNet, LearnsAndGoesOnWithTheSameBits) {
  SdtpNet whole(kHidden, 8, 2, 1);
  SdtpNet first(kHidden, 8, 2, 1);
  double loss_at_start = 0;
  SdtpLosses losses;
  for (uint64_t step = 0; step < 200; ++step) {
    losses = whole.Learn(Targets(step % 8), {}, 1, RandomAt({step}));
    if (step == 0) loss_at_start = losses.mse + losses.rank;
    whole.Step(0.01);
    if (step < 77) {
      first.Learn(Targets(step % 8), {}, 1, RandomAt({step}));
      first.Step(0.01);
    }
  }
  EXPECT_LT(losses.mse + losses.rank, 0.5 * loss_at_start);

  SdtpNet second(kHidden, 8, 2, 99);  // different weights, which Restore replaces
  ASSERT_TRUE(second.Restore(first.State(), first.steps()));
  EXPECT_EQ(second.steps(), 77);
  for (uint64_t step = 77; step < 200; ++step) {
    second.Learn(Targets(step % 8), {}, 1, RandomAt({step}));
    second.Step(0.01);
  }
  const std::vector<NamedArray> a = whole.State();
  const std::vector<NamedArray> b = second.State();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].values, b[i].values) << a[i].name;
  SdtpNet other(kHidden, 9, 2, 1);
  EXPECT_FALSE(other.Restore(a, 200));
}

TEST(SdtpNet, SeedsMatter) {
  EXPECT_EQ(SdtpNet(kHidden, 5, 2, 3).Weights()[2].values, SdtpNet(kHidden, 5, 2, 3).Weights()[2].values);
  EXPECT_NE(SdtpNet(kHidden, 5, 2, 3).Weights()[2].values, SdtpNet(kHidden, 5, 2, 4).Weights()[2].values);
}

TEST(SdtpNet, AnInfiniteGradientIsAnError) {
  SdtpNet net(kHidden, 5, 1, 3);
  torch::autograd::backward({net.torch().parameters[2].value.sum() * 1e38 * 1e38}, {});
  EXPECT_NE(ErrorOf([&] { net.Step(0.01); }).find("learning rate"), std::string::npos);
}

}  // namespace
}  // namespace coppice
