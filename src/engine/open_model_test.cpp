#include "engine/open_model.h"

#include <gtest/gtest.h>

#include "model/synthetic.h"
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

}  // namespace
}  // namespace coppice
