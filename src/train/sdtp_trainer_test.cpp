// Complete runs on a small trained model: predictions come to agree with saliency, a seed gives reproducible
// results, and an interrupted run ends with the same bytes.
#include "train/sdtp_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "base/mmap.h"
#include "engine/open_model.h"
#include "formats/safetensors.h"
#include "policies/methods/sdtp_predictor.h"
#include "test_files.h"

namespace coppice {
namespace {

using testing::HasSubstr;

// Sentences in the style of the stories that the model was trained on, with random names and things.
std::string Stories(int count) {
  Random random(1);
  const auto pick = [&](std::vector<std::string> of) {
    return of[static_cast<size_t>(random.Below(of.size()))];
  };
  std::string text;
  for (int i = 0; i < count; ++i) {
    const std::string name = pick({"Tim", "Lily", "Ben", "Sue", "Max", "Anna"});
    const std::string thing = pick({"ball", "dog", "cake", "tree", "boat", "hat"});
    text += "Once upon a time there was a child named " + name + ". " + name + " had a " +
            pick({"red", "big", "new"}) + " " + thing + " and went to the " +
            pick({"park", "shop", "house", "beach"}) + ". Then " + name + " was happy and played with the " +
            thing + " all day. ";
  }
  return text;
}

std::string BytesOf(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class SdtpTrainer : public testing::Test {
 protected:
  void SetUp() override {
    COPPICE_NEEDS_SHARED("models/stories260K");
    data_ = folder_.Write("stories.txt", Stories(40));
  }
  SdtpTraining Training(const std::string& name) const {
    SdtpTraining t;
    t.model = SharedPath("models/stories260K/stories260K.gguf");
    t.data = {data_};
    t.output = folder_.Path(name + ".safetensors");
    t.work = folder_.Path("work");
    t.texts = {.longest = 96, .response = 24};
    t.layers = {1, 3};
    t.epochs = 6;
    t.batch = 4;
    t.learning_rate = 5e-3;
    t.seed = 3;
    t.threads = 1;
    return t;
  }
  static SdtpReport RunToEnd(const SdtpTraining& t) { return TrainSdtp(t, {}, nullptr); }

  TempFolder folder_;
  std::string data_;
};

TEST_F(SdtpTrainer, PredictionsComeToAgree) {
  SdtpTraining t = Training("out");
  t.data = {folder_.Write("more.txt", Stories(160))};
  t.epochs = 10;
  const SdtpReport report = RunToEnd(t);
  EXPECT_GT(report.learned_from, 60);
  EXPECT_EQ(report.held_out + report.learned_from, report.texts.used);
  ASSERT_EQ(report.stages.size(), 2u);
  for (const SdtpStageReport& s : report.stages) {
    EXPECT_GT(s.trained.tau, 0.3) << s.layer;
    EXPECT_GT(s.trained.tau, s.untrained.tau + 0.2) << s.layer;
    EXPECT_LT(std::abs(s.random.tau), 0.1) << s.layer;
    EXPECT_GT(s.trained.rho, s.trained.tau) << s.layer;
    EXPECT_GT(s.trained.kept, s.random.kept) << s.layer;
    EXPECT_GE(s.best_kept, s.trained.kept) << s.layer;
  }
  // The engine can read the file, and its metadata names the model.
  const OpenedModel model = OpenModel(t.model);
  const SdtpFile file(t.output, model.config.shape);
  EXPECT_EQ(file.layers(), t.layers);
  EXPECT_EQ(file.r(), 0.9);
  EXPECT_EQ(file.first(), 4);
  EXPECT_EQ(file.local(), 0.1);
  const MappedFile mapped(t.output);
  const auto metadata = ParseSafetensors(mapped.bytes(), t.output).metadata;
  EXPECT_THAT(metadata.at("base_model"), HasSubstr(metadata.at("base_model_hash")));
  EXPECT_EQ(metadata.at("base_model_hash").size(), 16u);
}

TEST_F(SdtpTrainer, ASeedReproduces) {
  SdtpTraining t = Training("a");
  RunToEnd(t);
  t.output = folder_.Path("b.safetensors");
  t.work = folder_.Path("work of its own");
  RunToEnd(t);
  EXPECT_EQ(BytesOf(folder_.Path("a.safetensors")), BytesOf(folder_.Path("b.safetensors")));
  t.output = folder_.Path("c.safetensors");
  t.seed = 4;
  RunToEnd(t);
  EXPECT_NE(BytesOf(folder_.Path("a.safetensors")), BytesOf(folder_.Path("c.safetensors")));
}

// Stops every session after 12 progress reports until the run is complete, with both kinds of learning.
TEST_F(SdtpTrainer, StoppedAnywhereItEndsWithTheSameBytes) {
  for (const bool end_to_end : {false, true}) {
    SdtpTraining t = Training("whole");
    t.texts.limit = 10;
    t.epochs = 2;
    t.save_every = 2;
    t.end_to_end = end_to_end;
    t.mask = MaskKind::kGumbel;
    t.losses.distill = end_to_end ? 0.5 : 0;
    t.work = folder_.Path(end_to_end ? "work 1" : "work 0");
    RunToEnd(t);

    t.output = folder_.Path("pieces.safetensors");
    t.work = folder_.Path(end_to_end ? "work 3" : "work 2");
    int sittings = 0;
    bool resumed = false;
    for (bool done = false; !done; ++sittings) {
      ASSERT_LT(sittings, 50);
      std::atomic<bool> stop = false;
      int reports = 0;
      try {
        const SdtpReport report = TrainSdtp(
            t, [&](const TrainingProgress&) { stop = ++reports > 12; }, &stop);
        done = true;
        resumed = report.resumed_at > 0;
      } catch (const Cancelled&) {
      }
    }
    EXPECT_GE(sittings, 2);
    EXPECT_TRUE(resumed || sittings > 2);
    EXPECT_EQ(BytesOf(folder_.Path("whole.safetensors")), BytesOf(t.output));
  }
}

TEST_F(SdtpTrainer, AblationsShareTheMarkedTexts) {
  SdtpTraining t = Training("full");
  t.texts.limit = 10;
  t.epochs = 1;
  RunToEnd(t);
  std::map<std::string, std::filesystem::file_time_type> before;
  for (const auto& entry : std::filesystem::directory_iterator(t.work)) {
    if (entry.path().filename().string().starts_with("text-")) before[entry.path()] = entry.last_write_time();
  }
  EXPECT_EQ(before.size(), 10u);
  const std::string full = BytesOf(t.output);
  t.losses.rank = 0;
  RunToEnd(t);
  const std::string no_rank = BytesOf(t.output);
  t.end_to_end = true;
  t.losses.mse = 0;
  RunToEnd(t);
  EXPECT_NE(full, no_rank);
  EXPECT_NE(no_rank, BytesOf(t.output));
  for (const auto& [path, time] : before) EXPECT_EQ(std::filesystem::last_write_time(path), time);
}

TEST_F(SdtpTrainer, WhatCannotBeIsAnErrorInOneLine) {
  const auto refusal = [&](auto&& change) {
    SdtpTraining t = Training("never");
    change(t);
    const std::string message = ErrorOf([&] { RunToEnd(t); });
    EXPECT_FALSE(std::filesystem::exists(t.output));
    return message;
  };
  EXPECT_THAT(refusal([](SdtpTraining& t) { t.losses.mse = t.losses.rank = 0; }), HasSubstr("end_to_end"));
  EXPECT_THAT(refusal([](SdtpTraining& t) { t.losses.distill = 1; }), HasSubstr("distill"));
  EXPECT_THAT(refusal([](SdtpTraining& t) { t.layers = {0}; }), HasSubstr("layers: 0"));
  EXPECT_THAT(refusal([](SdtpTraining& t) { t.layers = {5}; }), HasSubstr("layers: 5"));
  EXPECT_THAT(refusal([](SdtpTraining& t) { t.layers = {3, 3}; }), HasSubstr("must ascend"));
  EXPECT_THAT(refusal([](SdtpTraining& t) { t.texts.longest = 1 << 20; }), HasSubstr("length"));
  EXPECT_THAT(refusal([](SdtpTraining& t) { t.texts.limit = 1; }), HasSubstr("one text is too few"));
  EXPECT_THAT(refusal([](SdtpTraining& t) { t.model = "no such model"; }), HasSubstr("no such model"));
  EXPECT_THAT(refusal([](SdtpTraining& t) { t.data = {"no such text"}; }), HasSubstr("no such text"));
  EXPECT_FALSE(std::filesystem::exists(folder_.Path("work")));  // rejected before any file is created
}

TEST(LearningRate, WarmsUpAndFades) {
  EXPECT_DOUBLE_EQ(LearningRate(1, 0, 1000), 1.0 / 30);
  EXPECT_DOUBLE_EQ(LearningRate(1, 29, 1000), 1);
  EXPECT_DOUBLE_EQ(LearningRate(1, 30, 1000), 1);
  EXPECT_NEAR(LearningRate(1, 515, 1000), 0.5, 1e-3);
  EXPECT_LT(LearningRate(1, 999, 1000), 1e-5);
  EXPECT_DOUBLE_EQ(LearningRate(2, 0, 1), 2);
}

}  // namespace
}  // namespace coppice
