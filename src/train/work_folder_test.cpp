#include "train/work_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include "test_files.h"

namespace coppice {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const Marked kMarked = {{{0, 1, 10, 11, 20, 21, 1e6f, -1e6f}, {5, 5, 5, 5, 5, 5, 5, 5}},
                        {{0.25f, 0.5f, 1, 0.1f}, {1, 0, 0, 0}},
                        -3};
const std::vector<int32_t> kRows = {1, 3};

TEST(WorkFolder, TextsComeBack) {
  const TempFolder temp;
  const WorkFolder folder(temp.Path("deep/work"));
  EXPECT_FALSE(folder.HasText("k"));
  folder.PutText("k", kMarked, kRows, 2);
  ASSERT_TRUE(folder.HasText("k"));
  const StoredText text = folder.GetText("k", 2, 4, 2);
  EXPECT_EQ(text.rows, kRows);
  EXPECT_EQ(text.saliency, kMarked.saliency);
  EXPECT_EQ(text.hidden[0], (std::vector<float>{10, 11, 65504, -65504}));  // the largest f16 value
  const std::vector<StageTargets> targets = text.Targets();
  EXPECT_EQ(targets[0].saliency, (std::vector<float>{0.5f, 0.1f}));
  EXPECT_EQ(targets[1].saliency, (std::vector<float>{0, 0}));
}

TEST(WorkFolder, StrangeFilesAreErrorsThatNameThem) {
  const TempFolder temp;
  const WorkFolder folder(temp.path());
  folder.PutText("k", kMarked, kRows, 2);
  const std::string file = temp.Path("text-k.safetensors");
  const auto refusal = [&](int64_t stages, int64_t prompt, int64_t d) {
    return ErrorOf([&] { folder.GetText("k", stages, prompt, d); });
  };
  EXPECT_EQ(refusal(2, 4, 2), "no error");
  EXPECT_THAT(refusal(3, 4, 2), AllOf(HasSubstr(file), HasSubstr("hidden.2")));
  EXPECT_THAT(refusal(2, 5, 2), AllOf(HasSubstr(file), HasSubstr("saliency.0")));
  EXPECT_THAT(refusal(2, 4, 3), AllOf(HasSubstr(file), HasSubstr("hidden.0")));
  EXPECT_THAT(refusal(2, 2, 2), AllOf(HasSubstr(file), HasSubstr("does not have")));
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 3);
  EXPECT_THAT(refusal(2, 4, 2), HasSubstr(file));
  temp.Write("text-k.safetensors", "");
  EXPECT_THAT(refusal(2, 4, 2), HasSubstr(file));
}

TEST(WorkFolder, RunsComeBack) {
  const TempFolder temp;
  const WorkFolder folder(temp.path());
  SdtpNet net(6, 3, 2, 1);
  EXPECT_FALSE(folder.GetRun("r", net));
  folder.PutRun("r", net);
  SdtpNet other(6, 3, 2, 2);
  ASSERT_TRUE(folder.GetRun("r", other));
  EXPECT_EQ(net.Weights()[2].values, other.Weights()[2].values);
  SdtpNet wider(6, 4, 2, 2);
  const std::string file = temp.Path("run-r.safetensors");
  EXPECT_THAT(ErrorOf([&] { folder.GetRun("r", wider); }), AllOf(HasSubstr(file), HasSubstr("does not fit")));
  temp.Write("run-r.safetensors", "not a safetensors file");
  EXPECT_THAT(ErrorOf([&] { folder.GetRun("r", net); }), HasSubstr(file));
}

TEST(WorkFolder, OneRunAtATimeAndNoLitter) {
  const TempFolder temp;
  temp.Write("text-abc.safetensors.77.part", "cut off");
  temp.Write("mine.part", "somebody else's");
  std::optional<WorkFolder> folder(temp.path());
  EXPECT_FALSE(std::filesystem::exists(temp.Path("text-abc.safetensors.77.part")));
  EXPECT_TRUE(std::filesystem::exists(temp.Path("mine.part")));
  EXPECT_THAT(ErrorOf([&] { WorkFolder second(temp.path()); }), HasSubstr("another training run"));
  folder.reset();
  EXPECT_EQ(ErrorOf([&] { WorkFolder second(temp.path()); }), "no error");
  EXPECT_THAT(ErrorOf([&] { WorkFolder on_a_file(temp.Path("mine.part")); }), HasSubstr("mine.part"));
}

}  // namespace
}  // namespace coppice
