// Masking in training must match removal in the engine, and gradients must reach the predictors.
#include "train/end_to_end.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "formats/safetensors_writer.h"
#include "policies/registry.h"
#include "train/sdtp_net_torch.h"
#include "train/train_test_support.h"

namespace coppice {
namespace {

const SdtpConfig kRule = {.layers = {1, 2, 4}, .r = 0.7, .first = 4, .local = 0.1};

// Well-separated scores, like those of trained predictors: scales the first layer of each network.
std::unique_ptr<SdtpNet> MakeNet(uint64_t seed) {
  auto net = std::make_unique<SdtpNet>(64, 16, 3, seed);
  const at::NoGradGuard fixed;
  for (SdtpNet::Torch::Parameter& p : net->torch().parameters) {
    if (p.name.ends_with("fc1.w") || p.name.ends_with("fc2.w")) p.value.mul_(3);
  }
  return net;
}

std::string WriteNet(const TempFolder& folder, const SdtpNet& net) {
  std::vector<SafetensorsEntry> entries;
  const std::vector<NamedArray> arrays = net.Weights();
  for (const NamedArray& a : arrays) {
    entries.push_back({a.name, DType::kF32, a.shape, std::as_bytes(std::span(a.values))});
  }
  const std::string path = folder.Path("sdtp.safetensors");
  WriteSafetensors(path, "test", entries,
                   {{"layers", "1,2,4"},
                    {"stages", "3"},
                    {"r", "0.7"},
                    {"first", "4"},
                    {"local", "0.1"},
                    {"base_model", "t"}});
  return path;
}

struct EngineRun {
  std::vector<float> logits;  // at the end of the prompt and at all response tokens but the last
  std::vector<std::vector<int32_t>> cached;  // [layers] positions after prefill
};

EngineRun RunEngine(const Transformer& model, const TrainingText& text, const std::string& file) {
  const std::unique_ptr<Backend> be = MakeBackend("reference", {.threads = 1, .exact = true});
  const std::vector<int32_t> prompt(text.tokens.begin(), text.tokens.begin() + text.prompt);
  const MethodContext context{.shape = model.config().shape, .tokens = text.prompt, .prompt = prompt};
  PruneChoice choice = MakePolicy("sdtp:min=0,file=" + file, context, {});
  EXPECT_TRUE(choice.active) << choice.reason;
  SequenceState sequence = model.NewSequence(text.prompt, static_cast<int64_t>(text.tokens.size()), *be);
  Workspace ws = model.NewWorkspace(64);
  Tensor logits;
  EngineRun run;
  const auto take = [&] {
    const std::span<const float> row = logits.view().Row<float>(0);
    run.logits.insert(run.logits.end(), row.begin(), row.end());
  };
  model.Prefill(prompt, {*choice.policy, sequence, ws, *be}, logits);
  for (const LayerState& layer : sequence.layers) {
    const LayerCache& cache = layer.cache;
    run.cached.emplace_back(cache.positions().begin(), cache.positions().end());
  }
  take();
  for (size_t i = prompt.size(); i + 1 < text.tokens.size(); ++i) {
    model.Decode(text.tokens[i], {*choice.policy, sequence, ws, *be}, logits);
    take();
  }
  return run;
}

class Simulation : public testing::TestWithParam<const char*> {};

TEST_P(Simulation, OfMasksIsRemoval) {
  const TinyModel tiny =
      MakeTiny({.architecture = GetParam(), .interleaved = std::string(GetParam()) == "llama"});
  const std::unique_ptr<FrozenModel> model = MakeFrozen(tiny);
  const TempFolder folder;
  for (const int64_t prompt : {120, 41}) {
    const TrainingText text{RandomPrompt(prompt + 9, 50), prompt};
    const std::unique_ptr<SdtpNet> net = MakeNet(static_cast<uint64_t>(prompt));
    const PrunedLogits simulated = SimulatePruning({*model, kRule}, text, *net);
    const EngineRun run = RunEngine(tiny.Make(), text, WriteNet(folder, *net));
    EXPECT_EQ(simulated.kept[0], run.cached[1]);
    EXPECT_EQ(simulated.kept[1], run.cached[2]);
    EXPECT_EQ(simulated.kept[1], run.cached[3]);
    EXPECT_EQ(simulated.kept[2], run.cached[4]);
    EXPECT_EQ(simulated.kept[2], run.cached[5]);
    EXPECT_LT(static_cast<double>(simulated.kept[2].size()), 0.4 * static_cast<double>(prompt));
    ExpectNear(simulated.logits, run.logits, 1e-4);
    // Checks that pruning matters: without it, the logits differ.
    const std::vector<float> dense = model->Logits(text.tokens);
    double largest = 0;
    for (int64_t i = 0; i < 50; ++i) {
      const double was = dense[static_cast<size_t>((prompt - 1) * 50 + i)];
      largest = std::max(largest, std::abs(was - simulated.logits[static_cast<size_t>(i)]));
    }
    EXPECT_GT(largest, 0.02);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Simulation, testing::Values("llama", "qwen2", "bloom"),
                         [](const auto& test) { return std::string(test.param); });

struct Learned {
  SdtpLosses losses;
  std::map<std::string, double> gradient;  // norm, by parameter
};

Learned LearnOnce(MaskKind mask, const SdtpLossWeights& weights, uint64_t draw = 5) {
  const TinyModel tiny = MakeTiny({});
  const std::unique_ptr<FrozenModel> model = MakeFrozen(tiny);
  const TrainingText text{RandomPrompt(60, 50), 50};
  const Marked marked = model->Mark(text, kRule.layers);
  const std::unique_ptr<SdtpNet> net = MakeNet(1);
  Learned learned;
  learned.losses =
      LearnEndToEnd({*model, kRule, mask}, text, marked.saliency, weights, 1, RandomAt({draw}), *net);
  for (const SdtpNet::Torch::Parameter& p : net->torch().parameters) {
    learned.gradient[p.name] = p.value.grad().defined() ? p.value.grad().square().sum().item<double>() : 0;
  }
  return learned;
}

// The paper's ablation without ranking loss and MSE: all gradients pass through the masks.
TEST(EndToEnd, TheAnswerReachesEveryStageThroughTheMasks) {
  for (const MaskKind mask : {MaskKind::kTopK, MaskKind::kGumbel}) {
    const Learned learned = LearnOnce(mask, {.mse = 0, .rank = 0});
    EXPECT_GT(learned.losses.answer, 1);  // near log(50) for random weights
    EXPECT_LT(learned.losses.answer, 8);
    for (int s = 0; s < 3; ++s)
      EXPECT_GT(learned.gradient.at("sdtp." + std::to_string(s) + ".fc1.w"), 0) << s;
  }
}

TEST(EndToEnd, LossesCountAsTheyAreWeighed) {
  const Learned plain = LearnOnce(MaskKind::kTopK, {});
  EXPECT_GT(plain.losses.mse, 0);
  EXPECT_GT(plain.losses.rank, 0);
  EXPECT_EQ(plain.losses.distill, 0);
  // Top-k masks keep r^s of the prompt to within half a token; the budget includes the protected tokens here.
  EXPECT_LT(plain.losses.ratio, 1e-3);
  const Learned distilled = LearnOnce(MaskKind::kTopK, {.distill = 0.5});
  EXPECT_GT(distilled.losses.distill, 0);
  EXPECT_NE(distilled.gradient.at("sdtp.0.fc1.w"), plain.gradient.at("sdtp.0.fc1.w"));
  const Learned bare = LearnOnce(MaskKind::kGumbel, {});
  const Learned tied = LearnOnce(MaskKind::kGumbel, {.ratio = 2});
  EXPECT_GT(bare.losses.ratio, 1e-3);
  EXPECT_EQ(bare.losses.ratio, tied.losses.ratio);
  EXPECT_NE(bare.gradient.at("sdtp.2.fc2.w"), tied.gradient.at("sdtp.2.fc2.w"));
}

// Without pruning there is nothing to distil: the dense and the masked pass are equal.
TEST(EndToEnd, NothingPrunedIsDense) {
  const std::unique_ptr<FrozenModel> model = MakeFrozen(MakeTiny({}));
  const TrainingText text{RandomPrompt(60, 50), 50};
  const SdtpConfig all = {.layers = kRule.layers, .r = 1};
  const PrunedLogits same = SimulatePruning({*model, all}, text, *MakeNet(1));
  std::vector<float> dense = model->Logits(text.tokens);
  ExpectNear(same.logits, {dense.begin() + 49 * 50, dense.end() - 50}, 1e-4);
}

TEST(EndToEnd, GumbelDrawsDiffer) {
  EXPECT_EQ(LearnOnce(MaskKind::kGumbel, {}, 5).losses.answer,
            LearnOnce(MaskKind::kGumbel, {}, 5).losses.answer);
  EXPECT_NE(LearnOnce(MaskKind::kGumbel, {}, 5).losses.answer,
            LearnOnce(MaskKind::kGumbel, {}, 6).losses.answer);
}

}  // namespace
}  // namespace coppice
