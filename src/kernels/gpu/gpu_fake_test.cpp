// The host code over the fake device (fake/fake_driver.cpp): memory, transfers, steps and limits; and what
// would be luck on a real device is a fault. Runs where COPPICE_CUDA_LIBRARY names that driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "kernels/conformance_support.h"
#include "kernels/gpu/fake_test_support.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/gpu_backend.h"
#include "kernels/gpu/operands.h"
#include "tensor/device_memory.h"

namespace coppice {
namespace {

using gpu::Gpu;
using testing_gpu::GpuFake;
using testing_kernels::Random;
using testing_kernels::RandomWeight;
using testing_kernels::SameBits;

TEST_F(GpuFake, AMissingDriverOrDeviceIsAnErrorOfOneLine) {
  const auto error_of = [](const char* variable, const char* value) {
    const char* before = std::getenv(variable);
    const std::string kept = before != nullptr ? before : "";
    setenv(variable, value, 1);
    std::string what;
    try {
      MakeGpuBackend({});
    } catch (const Error& error) {
      what = error.what();
    }
    before != nullptr ? setenv(variable, kept.c_str(), 1) : unsetenv(variable);
    return what;
  };
  EXPECT_NE(error_of("COPPICE_CUDA_LIBRARY", "/no/such/library.so").find("cannot load /no/such/library.so"),
            std::string::npos);
  EXPECT_EQ(error_of("COPPICE_FAKE_CUDA_DEVICES", "0"), "[gpu] there is no CUDA device");
}

TEST_F(GpuFake, WhatDoesNotFitIsRefusedWithTheArithmetic) {
  const std::unique_ptr<Backend> be = MakeGpuBackend({});
  be->CheckFits({.weights = 1000, .keys_values = 100, .workspace = 10});
  try {
    be->CheckFits({.weights = int64_t{1} << 40, .keys_values = 100, .workspace = 10});
    FAIL() << "a terabyte fits";
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("weights 1099511627776 + keys and values 100 + workspace 10 = 1099511627886 bytes"),
              std::string::npos)
        << what;
  }
  EXPECT_THROW(Tensor(DType::kF32, int64_t{1} << 20, int64_t{1} << 20, be->memory()), Error);
}

// Documents that one device and library read are not those of another: the bits may differ.
TEST_F(GpuFake, TheArithmeticIsNamed) {
  const std::unique_ptr<Backend> be = MakeGpuBackend({});
  const bool own = Gpu::Open()->cublaslt() == nullptr;
  EXPECT_EQ(be->isa(), own ? "sm_0, fake device" : "sm_0, fake device, cuBLASLt 120000");
}

TEST_F(GpuFake, PlacedBytesAreWhatPlacingTakes) {
  const std::unique_ptr<Backend> be = MakeGpuBackend({});
  const std::shared_ptr<Gpu> gpu = Gpu::Open();
  const auto free = [&] {
    gpu->device().Synchronize();
    return gpu->device().FreeBytes();
  };
  for (const DType type : {DType::kF32, DType::kBF16, DType::kQ4_0, DType::kQ5_1, DType::kQ8_0, DType::kQ2_K,
                           DType::kQ3_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ3_XXS}) {
    const Tensor w = RandomWeight(type, 130, 512, 1);
    for (const WeightUse use : {WeightUse::kProduct, WeightUse::kTable}) {
      const int64_t before = free();
      const PlacedWeight placed = be->PlaceWeight(w.view(), use);
      EXPECT_EQ(be->PlacedBytes(w.view(), use), before - free()) << Info(type).name;
    }
  }
}

// A tensor that was freed counts as free, whether or not the stream got there.
TEST_F(GpuFake, WhatWasJustFreedFits) {
  const std::unique_ptr<Backend> be = MakeGpuBackend({});
  const std::shared_ptr<Gpu> gpu = Gpu::Open();
  gpu->device().Synchronize();
  const int64_t free = gpu->device().FreeBytes();
  { const Tensor large(DType::kF32, 1024, 1024, be->memory()); }
  EXPECT_NO_THROW(be->CheckFits({.workspace = free}));
  EXPECT_THROW(be->CheckFits({.workspace = free + 1}), Error);
}

TEST_F(GpuFake, RefusesHeadsThatAreTooWide) {
  const std::unique_ptr<Backend> be = MakeGpuBackend({});
  EXPECT_NO_THROW(be->CheckNeeds({.head_dim = 128}));
  EXPECT_EQ(ErrorOf([&] { be->CheckNeeds({.head_dim = 129}); }),
            "[gpu] heads of 129 channels: the kernels take up to 128");
  EXPECT_EQ(ErrorOf([&] { be->CheckNeeds({.head_dim = 64, .activation = Activation::kGelu}); }),
            "[gpu] the kernels have no FFN whose gate is not a silu");
  EXPECT_EQ(ErrorOf([&] { be->CheckNeeds({.head_dim = 64, .embedding_scale = 2}); }),
            "[gpu] the kernels do not scale embeddings");
  EXPECT_EQ(ErrorOf([&] { be->CheckNeeds({.head_dim = 64, .output_gate = true}); }),
            "[gpu] the kernels have no gate on attention's output");
}

TEST_F(GpuFake, RefusesOtherArithmetic) {
  EXPECT_THROW(MakeGpuBackend({.exact = true}), Error);
  EXPECT_THROW(MakeGpuBackend({.cache_type = DType::kF32}), Error);
  EXPECT_EQ(MakeGpuBackend({.cache_type = DType::kQ8_0})->cache_dtype(), DType::kQ8_0);
}

TEST_F(GpuFake, OperandsAreTheSameInEitherMemory) {
  const std::unique_ptr<Backend> be = MakeGpuBackend({});
  const Tensor x = Random(33, 96, 1);
  const Tensor w = RandomWeight(DType::kQ8_0, 50, 96, 2);
  Tensor device_x(DType::kF32, 33, 96, be->memory());
  CopyRows(x.view(), device_x.mutable_view());
  const PlacedWeight placed = be->PlaceWeight(w.view(), WeightUse::kProduct);
  Tensor expected;
  for (const TensorView& from : {x.view(), TensorView(device_x.view())}) {
    for (const TensorView& weight : {w.view(), placed.view}) {
      Tensor y(DType::kF32, 33, 50);
      be->DecodeProduct(from, weight, {}, y.mutable_view());
      if (expected.rows() == 0) expected = y.Clone();
      EXPECT_TRUE(SameBits(y, expected));
    }
  }
}

TEST_F(GpuFake, CopiesMayOverlapAndHaveGaps) {
  const std::unique_ptr<Backend> be = MakeGpuBackend({});
  const Tensor x = Random(20, 24, 1);
  for (const int64_t to : {0, 3, 8}) {
    Tensor device(DType::kF32, 20, 24, be->memory());
    Tensor host = x.Clone();
    CopyRows(x.view(), device.mutable_view());
    CopyRows(device.view().Rows(4, 10).Cols(8, 8), device.mutable_view().Rows(to, 10).Cols(8, 8));
    CopyRows(host.view().Rows(4, 10).Cols(8, 8), host.mutable_view().Rows(to, 10).Cols(8, 8));
    const HostRows seen(device.view());
    EXPECT_TRUE(SameBits(seen.view(), host.view())) << to;
  }
}

// More than the pinned segments hold at once.
TEST_F(GpuFake, LongTransfersPassThroughThePinnedSegments) {
  const std::unique_ptr<Backend> be = MakeGpuBackend({});
  const Tensor x = Random(5000, 3000, 1);  // 60 MB
  Tensor device(DType::kF32, 5000, 3008, be->memory());
  CopyRows(x.view(), device.mutable_view().Cols(8, 3000));
  const HostRows seen(TensorView(device.view()).Cols(8, 3000));
  EXPECT_TRUE(SameBits(seen.view(), x.view()));
}

// The device may begin as late as it likes: nothing has run before the host waits.
TEST_F(GpuFake, WorkWaitsForTheHost) {
  const std::shared_ptr<Gpu> gpu = Gpu::Open();
  const Tensor x = Random(4, 16, 1);
  Tensor a(DType::kF32, 4, 16, &gpu->heap());
  CopyRows(x.view(), a.mutable_view());
  gpu::Device::Pinned pinned(gpu->device(), x.bytes());
  std::memset(pinned.data(), 0, static_cast<size_t>(x.bytes()));
  const gpu::Driver& d = gpu->device().driver();
  d.Check(d.cuMemcpyDtoHAsync(pinned.data(), gpu::AddressOf(a.view().data), static_cast<size_t>(x.bytes()),
                              gpu->device().stream()),
          "copying");
  EXPECT_NE(std::memcmp(pinned.data(), x.view().data, static_cast<size_t>(x.bytes())), 0);
  gpu->device().Synchronize();
  EXPECT_EQ(std::memcmp(pinned.data(), x.view().data, static_cast<size_t>(x.bytes())), 0);
}

TEST_F(GpuFake, AStepIsOneGraphThatTheNextStepUpdates) {
  const std::unique_ptr<Backend> be = MakeGpuBackend({});
  const std::shared_ptr<Gpu> gpu = Gpu::Open();
  const Tensor x = Random(1, 64, 1);
  Tensor sum = Tensor::Zeros(DType::kF32, 1, 64, be->memory());
  Tensor other = Tensor::Zeros(DType::kF32, 1, 64, be->memory());
  be->Add(x.view(), other.mutable_view());  // loads the kernel, which would cut a step in two
  const int64_t graphs = gpu->device().recorder().launched();
  const int64_t made = gpu->device().recorder().instantiated();
  for (int step = 0; step < 5; ++step) {
    be->BeginStep();
    be->Add(x.view(), sum.mutable_view());
    be->Add(x.view(), sum.mutable_view());
    be->EndStep();
  }
  EXPECT_EQ(gpu->device().recorder().launched() - graphs, 5);
  EXPECT_EQ(gpu->device().recorder().instantiated() - made, 1);
  // Another step waits in its middle: two graphs, the first of which is of another shape.
  be->BeginStep();
  be->Add(x.view(), sum.mutable_view());
  const HostRows middle(sum.view());
  be->Add(x.view(), sum.mutable_view());
  be->EndStep();
  EXPECT_EQ(gpu->device().recorder().launched() - graphs, 7);
  const HostRows end(sum.view());
  for (size_t c = 0; c < 64; ++c) {
    EXPECT_NEAR(middle.view().Row<float>(0)[c], 11 * x.view().Row<float>(0)[c], 1e-4);
    EXPECT_NEAR(end.view().Row<float>(0)[c], 12 * x.view().Row<float>(0)[c], 1e-4);
  }
}

using GpuFakeDeathTest = GpuFake;

TEST_F(GpuFakeDeathTest, HostCodeThatTouchesDeviceMemoryFaults) {
  const std::unique_ptr<Backend> be = MakeGpuBackend({});
  const Tensor t = Tensor::Zeros(DType::kF32, 1, 16, be->memory());
  EXPECT_DEATH(
      {
        volatile float value = *reinterpret_cast<const float*>(t.view().data);
        static_cast<void>(value);
      },
      "");
}

TEST_F(GpuFakeDeathTest, AUseAfterFreeAndADoubleFreeFault) {
  const std::shared_ptr<Gpu> gpu = Gpu::Open();
  gpu::Device& device = gpu->device();
  const auto freed = device.Allocate(64);
  const auto other = device.Allocate(64);
  device.Free(freed);
  EXPECT_DEATH(device.Free(freed), "double free");
  EXPECT_DEATH(
      {
        device.Copy(freed, 64, other, 64, {1, 64});
        device.Synchronize();
      },
      "use after free");
  EXPECT_DEATH(
      {
        device.Copy(other + 32, 64, other, 64, {1, 64});
        device.Synchronize();
      },
      "beyond the end");
  device.Free(other);
}

TEST_F(GpuFakeDeathTest, TransfersOfHostMemoryThatIsNotPinnedFault) {
  const std::shared_ptr<Gpu> gpu = Gpu::Open();
  const gpu::Driver& d = gpu->device().driver();
  Tensor a(DType::kF32, 1, 16, &gpu->heap());
  std::vector<float> pageable(16);
  EXPECT_DEATH(
      {
        d.cuMemcpyHtoDAsync(gpu::AddressOf(a.view().data), pageable.data(), 64, gpu->device().stream());
        gpu->device().Synchronize();
      },
      "not pinned");
}

TEST_F(GpuFakeDeathTest, AGridThatDoesNotCoverTheOperandsFaults) {
  const std::shared_ptr<Gpu> gpu = Gpu::Open();
  Tensor x = Tensor::Zeros(DType::kF32, 4, 1500, &gpu->heap());
  const auto at = gpu::AddressOf(x.view().data);
  EXPECT_DEATH(
      {
        gpu->kernels().Launch("gelu", {4, 1}, at, int64_t{1500}, int64_t{1500});
        gpu->device().Synchronize();
      },
      "gelu: axis 1 of the grid has 1 programs, not 2");
}

TEST_F(GpuFakeDeathTest, AThreadWithoutTheContextFaults) {
  const std::shared_ptr<Gpu> gpu = Gpu::Open();
  EXPECT_DEATH(
      std::thread([&] { gpu->device().driver().cuStreamSynchronize(gpu->device().stream()); }).join(),
      "the calling thread has no context");
}

// The fake computes what kernels/README.md lists, so it cannot drift from what is compiled.
TEST_F(GpuFake, TheKernelsAreThoseOfTheReadme) {
  std::ifstream file(COPPICE_SOURCE_DIR "/src/kernels/gpu/kernels/README.md");
  ASSERT_TRUE(file);
  std::map<std::string, std::pair<std::string, int>> listed;  // arguments, warps
  std::string name;
  std::string head;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("**")) {
      name = line.substr(2, line.find("**", 2) - 2);
      head = line;
    } else if (line.starts_with("    ") && !name.empty()) {
      std::string& arguments = listed[name].first;
      arguments += (arguments.empty() ? "" : " ") + line.substr(4);
      const size_t warp = head.find(" warp");
      const size_t comma = head.rfind(' ', warp - 1);
      listed[name].second = std::atoi(head.substr(comma + 1, warp - comma - 1).c_str());
    } else if (!line.empty() && !name.empty()) {
      head += " " + line;
    }
  }
  ASSERT_FALSE(listed.empty());
  const char* arguments = nullptr;
  int warps = 0;
  int count = 0;
  while (const char* kernel = fake().Kernel(count, &arguments, &warps)) {
    ++count;
    ASSERT_TRUE(listed.contains(kernel)) << kernel;
    EXPECT_EQ(listed[kernel].first, arguments) << kernel;
    EXPECT_EQ(listed[kernel].second, warps) << kernel;
  }
  EXPECT_EQ(count, std::ssize(listed));
}

}  // namespace
}  // namespace coppice
