// Decode steps of several threads over the fake device: what is recorded, and what is lost if a graph fails.
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "kernels/conformance_support.h"
#include "kernels/gpu/fake_test_support.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/gpu_backend.h"

namespace coppice {
namespace {

using gpu::Gpu;
using testing_kernels::Random;
using testing_kernels::SameBits;

class GpuStep : public testing_gpu::GpuFake {
 protected:
  void SetUp() override {
    testing_gpu::GpuFake::SetUp();
    if (IsSkipped()) return;
    gpu_ = Gpu::Open();
    backend_ = MakeGpuBackend({});
    own_ = Tensor::Zeros(DType::kF32, 1, 64, backend_->memory());
    other_ = Tensor::Zeros(DType::kF32, 1, 64, backend_->memory());
    Add(own_);  // loads the kernel, which would cut a step in two
    gpu_->device().Synchronize();
  }
  void Add(Tensor& to) { backend_->Add(x_.view(), to.mutable_view()); }
  static void InAnotherThread(const std::function<void()>& work) { std::thread(work).join(); }
  int64_t launched() { return gpu_->device().recorder().launched(); }
  // How often x was added.
  int TimesOf(const Tensor& sum) {
    const HostRows host(sum.view());
    return static_cast<int>(std::lround(host.view().Row<float>(0)[0] / x_.view().Row<float>(0)[0]));
  }

  std::shared_ptr<Gpu> gpu_;
  std::unique_ptr<Backend> backend_;
  Tensor x_ = Random(1, 64, 1);
  Tensor own_;
  Tensor other_;
};

TEST_F(GpuStep, AnotherThreadsWorkIsNoPartOfIt) {
  const int64_t before = launched();
  backend_->BeginStep();
  Add(own_);
  InAnotherThread([&] {
    Add(other_);
    // Its own work is on the stream, after the graph of the step so far.
    EXPECT_EQ(launched() - before, 1);
    EXPECT_FALSE(gpu_->device().recorder().recording());
    EXPECT_EQ(TimesOf(other_), 1);
  });
  Add(own_);
  EXPECT_TRUE(gpu_->device().recorder().recording());
  backend_->EndStep();
  EXPECT_EQ(launched() - before, 2);
  EXPECT_EQ(TimesOf(own_), 3);
}

TEST_F(GpuStep, AGraphThatFailsCostsOnlyItsOwnThreadItsWork) {
  backend_->BeginStep();
  Add(own_);
  fake().FailAt("cuGraphInstantiateWithFlags", 1);
  InAnotherThread([&] {
    EXPECT_NO_THROW(Add(other_));
    EXPECT_EQ(TimesOf(other_), 1);
  });
  EXPECT_THROW(Add(own_), Error);
  EXPECT_THROW(backend_->EndStep(), Error);
  fake().FailAt("", 0);
  EXPECT_EQ(TimesOf(own_), 1);
  // The next step knows nothing of it.
  backend_->BeginStep();
  Add(own_);
  backend_->EndStep();
  EXPECT_EQ(TimesOf(own_), 2);
}

TEST_F(GpuStep, StepsOfTwoThreadsAtOnceBothCompute) {
  backend_->BeginStep();
  Add(own_);
  InAnotherThread([&] {
    backend_->BeginStep();
    Add(other_);
    backend_->EndStep();
    EXPECT_EQ(TimesOf(other_), 1);
  });
  Add(own_);
  backend_->EndStep();
  EXPECT_EQ(TimesOf(own_), 3);
}

// The list that attention keeps on the device must not be believed to be there if its copy was lost.
TEST_F(GpuStep, AListWhoseCopyWasLostIsCopiedAgain) {
  const std::vector<int32_t> list = {5, 6, 7, 8};
  backend_->BeginStep();
  gpu_->CachedList(std::vector<int32_t>{1, 2, 3, 4});
  gpu_->CachedList(list);
  fake().FailAt("cuGraphInstantiateWithFlags", 1);
  EXPECT_THROW(backend_->EndStep(), Error);
  fake().FailAt("", 0);
  const auto address = gpu_->CachedList(list);
  std::vector<int32_t> seen(list.size());
  gpu_->device().Download(address, 16, reinterpret_cast<std::byte*>(seen.data()), 16, {1, 16});
  EXPECT_EQ(seen, list);
}

}  // namespace
}  // namespace coppice
