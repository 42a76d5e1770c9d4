#include "engine/open_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/synthetic.h"
#include "test_files.h"
#include "tests_support.h"

namespace coppice {
namespace {

// Attention would refuse them too, but only after the weights were copied, and in the middle of a request.
TEST(GpuOpenModel, RefusesHeadsThatAreTooWideBeforeTheWeightsAreCopied) {
  const std::unique_ptr<Backend> backend = MakeBackendOrSkip("gpu", {});
  if (!backend) GTEST_SKIP() << "this machine has no GPU";
  SyntheticModel model = ParseShape("tiny");
  ASSERT_NO_THROW(MakeTransformer(MakeSyntheticStore(model), model.config, backend.get()));
  model.config.shape.layers.back().head_dim = 160;
  EXPECT_EQ(ErrorOf([&] { MakeTransformer(MakeSyntheticStore(model), model.config, backend.get()); }),
            "[gpu] heads of 160 channels: the kernels take up to 128");
  const std::unique_ptr<Backend> cpu = MakeBackend("cpu", {});
  EXPECT_NO_THROW(MakeTransformer(MakeSyntheticStore(model), model.config, cpu.get()));
}

TEST(CheckModelFiles, TellsModelsFromOtherFiles) {
  const TempFolder folder;
  EXPECT_NO_THROW(CheckModelFiles(COPPICE_SOURCE_DIR "/models/coppice-mini-f16.gguf"));
  EXPECT_EQ(ErrorOf([&] { CheckModelFiles(folder.Path("none")); }),
            folder.Path("none") + ": no such file or folder");
  folder.Write("text", "no model at all");
  EXPECT_EQ(ErrorOf([&] { CheckModelFiles(folder.Path("text")); }),
            folder.Path("text") + ": neither a GGUF file nor a Hugging Face folder");
  folder.Write("cut.gguf", "GGUF");
  EXPECT_THAT(ErrorOf([&] { CheckModelFiles(folder.Path("cut.gguf")); }), testing::HasSubstr("cut.gguf"));
  EXPECT_THAT(ErrorOf([&] { CheckModelFiles(folder.Path("")); }), testing::HasSubstr("config.json"));
}

}  // namespace
}  // namespace coppice
