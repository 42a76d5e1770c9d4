// The forward pass against the engine and against float64 results; saliency against finite differences of the
// likelihood.
#include "train/frozen_model.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/open_model.h"
#include "formats/json.h"
#include "shape_edit.h"
#include "train/frozen_model_torch.h"
#include "train/train_test_support.h"

namespace coppice {
namespace {

struct Shape {
  const char* name;
  TinyOptions options;
  int32_t window = 0;
};

class ForwardPass : public testing::TestWithParam<Shape> {
 protected:
  TinyModel Tiny() const {
    TinyModel tiny = MakeTiny(GetParam().options);
    SetInAll(tiny.config.shape, &LayerShape::window, GetParam().window);
    return tiny;
  }
};

TEST_P(ForwardPass, GivesTheEnginesLogits) {
  const TinyModel tiny = Tiny();
  const std::vector<int32_t> tokens = RandomPrompt(70, 50);
  ExpectNear(MakeFrozen(tiny)->Logits(tokens), EngineLogits(tiny.Make(), tokens), 1e-4);
}

// <dT/dx_i, x_i> is the derivative of T as x_i is scaled.
TEST_P(ForwardPass, SaliencyIsHowTheLikelihoodChanges) {
  const TinyModel tiny = Tiny();
  const std::unique_ptr<FrozenModel> model = MakeFrozen(tiny);
  const TrainingText text{RandomPrompt(24, 50), 16};
  const std::vector<int> layers = {1, 3, 5};
  const Marked marked = model->Mark(text, layers);
  ASSERT_EQ(marked.saliency.size(), 3u);

  const at::NoGradGuard frozen;
  const TorchPass pass(model->torch(), 23);
  for (size_t s = 0; s < layers.size(); ++s) {
    std::vector<double> slopes;
    for (int64_t i = 0; i < text.prompt; ++i) {
      const auto likelihood = [&](float scale) {
        at::Tensor x = model->torch().Embed(std::span(text.tokens).first(23));
        for (int l = 0; l < 6; ++l) {
          if (l == layers[s]) x.select(0, i).mul_(scale);
          x = pass.Layer(l, x, {});
        }
        return LogLikelihood(model->torch(), text, x).item<double>();
      };
      slopes.push_back(std::abs(likelihood(1.01f) - likelihood(0.99f)) / 0.02);
    }
    const double largest = *std::max_element(slopes.begin(), slopes.end());
    for (size_t i = 0; i < slopes.size(); ++i) {
      EXPECT_NEAR(marked.saliency[s][i], slopes[i] / largest, 0.02) << "stage " << s << " token " << i;
    }
    EXPECT_EQ(*std::max_element(marked.saliency[s].begin(), marked.saliency[s].end()), 1);
    EXPECT_EQ(marked.hidden[s].size(), static_cast<size_t>(16 * 64));
  }
}

// The gradient of a mask, also at values between 0 and 1, against finite differences; and the recomputed
// layer against the recorded one.
TEST_P(ForwardPass, GradientsOfMasks) {
  const std::unique_ptr<FrozenModel> model = MakeFrozen(Tiny());
  const TorchPass pass(model->torch(), 12);
  const std::vector<int32_t> tokens = RandomPrompt(12, 50);
  const at::Tensor x = model->torch().Embed(tokens).requires_grad_(true);
  std::vector<float> values(12, 1.0f);
  values[3] = 0;
  values[5] = 0.5f;
  const auto run = [&](const at::Tensor& keep, bool again) {
    const at::Tensor y = again ? pass.Layer(1, x, keep) : pass.LayerRecorded(1, x, keep);
    return (y * y).sum();
  };
  const auto mask = [&] {
    return at::from_blob(values.data(), {12}, at::kFloat).clone().requires_grad_(true);
  };
  const at::Tensor keep = mask();
  const at::Tensor recorded_keep = mask();
  const std::vector<at::Tensor> again = torch::autograd::grad({run(keep, true)}, {keep, x});
  const std::vector<at::Tensor> recorded =
      torch::autograd::grad({run(recorded_keep, false)}, {recorded_keep, x});
  EXPECT_TRUE(again[0].equal(recorded[0]));
  EXPECT_TRUE(again[1].equal(recorded[1]));
  for (const size_t j : {0u, 5u, 7u}) {  // at 0 the formula jumps: dropped keys do not count in the maximum
    const float before = values[j];
    const auto at_value = [&](float v) {
      values[j] = v;
      return run(mask(), false).item<double>();
    };
    const double slope = (at_value(before + 0.01f) - at_value(before - 0.01f)) / 0.02;
    values[j] = before;
    EXPECT_NEAR(again[0][static_cast<int64_t>(j)].item<double>(), slope, 0.02 * std::abs(slope) + 0.02) << j;
  }
  EXPECT_NE(again[0][3].item<float>(), 0);  // a dropped token gets a gradient too
}

INSTANTIATE_TEST_SUITE_P(Models, ForwardPass,
                         testing::Values(Shape{"llama", {}}, Shape{"llama_halves", {.interleaved = false}},
                                         Shape{"windowed", {.interleaved = false}, 9},
                                         Shape{"qwen2", {.architecture = "qwen2", .interleaved = false}},
                                         Shape{"bloom", {.architecture = "bloom"}}),
                         [](const auto& test) { return std::string(test.param.name); });

std::unique_ptr<FrozenModel> OpenFrozen(const std::string& path) {
  OpenedModel opened = OpenModel(path);
  std::shared_ptr<const Weights> weights = Weights::Load(opened.store, opened.config);
  return std::make_unique<FrozenModel>(opened.config, std::move(weights));
}

// Files of real architectures with float64 logits.
TEST(FrozenModel, ParityFiles) {
  COPPICE_NEEDS_SHARED("data/parity");
  const std::string parity = SharedPath("data/parity/");
  for (const std::string name : {"llama", "qwen2", "mistral", "bloom"}) {
    const TempFolder folder;
    folder.Copy(parity + "tiny_" + name + "_config.json", "config.json");
    folder.Copy(parity + "tiny_" + name + ".safetensors", "model.safetensors");
    const std::unique_ptr<FrozenModel> model = OpenFrozen(folder.path());
    const nlohmann::json golden = ReadJsonFile(parity + "tiny_" + name + "_logits.json");
    ASSERT_GE(golden["sequences"].size(), 3u);
    for (size_t s = 0; s < golden["sequences"].size(); ++s) {
      std::vector<float> want;
      for (const auto& row : golden["logits"][s]) {
        for (const auto& logit : row) want.push_back(logit.get<float>());
      }
      ExpectNear(model->Logits(golden["sequences"][s].get<std::vector<int32_t>>()), want, 1e-4);
    }
  }
}

// Trained models, as a GGUF file and as a folder: the logits of the last position.
TEST(FrozenModel, TrainedModels) {
  COPPICE_NEEDS_SHARED("models/stories260K");
  for (const auto& [folder, file] :
       {std::pair{"models/stories260K", "/stories260K.gguf"}, std::pair{"models/TinyStories-656K", ""}}) {
    const std::string path = SharedPath(folder);
    const std::unique_ptr<FrozenModel> model = OpenFrozen(path + file);
    const nlohmann::json golden = ReadJsonFile(path + "/golden_logits_f64.json");
    for (const auto& c : golden["cases"]) {
      const std::vector<float> logits = model->Logits(c["tokens"].get<std::vector<int32_t>>());
      const auto want = c["last_logits"].get<std::vector<float>>();
      ExpectNear({logits.end() - static_cast<std::ptrdiff_t>(want.size()), logits.end()}, want, 1e-3);
    }
  }
}

// Numbers that overflow must throw, not produce a file of NaN.
TEST(FrozenModel, OverflowIsAnError) {
  TinyModel tiny = MakeTiny({});
  tiny.store->Mutable("blk.2.ffn_down.weight").Row<float>(0)[0] = 3e38f;
  tiny.store->Mutable("blk.3.ffn_down.weight").Row<float>(0)[0] = 3e38f;
  tiny.store->Mutable("blk.2.ffn_up.weight").Row<float>(0)[0] = 3e38f;
  const std::unique_ptr<FrozenModel> model = MakeFrozen(tiny);
  const std::vector<int> layers = {1};
  EXPECT_THAT(ErrorOf([&] {
                model->Mark({RandomPrompt(20, 50), 12}, layers);
              }),
              testing::HasSubstr("not finite"));
}

}  // namespace
}  // namespace coppice
