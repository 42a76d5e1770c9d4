// The store in pinned host memory over the fake device: its order beside the operations, and what fails.
#include "kernels/gpu/pinned_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/conformance_support.h"
#include "kernels/gpu/fake_test_support.h"
#include "kernels/gpu/gpu_backend.h"

namespace coppice {
namespace {

using gpu::Gpu;
using testing_kernels::Random;

constexpr int64_t kWidth = 256;
constexpr int64_t kBytes = kWidth * 4;

// Writes and reads records of the rows of tensors in device memory, and checks what comes back.
class Scene {
 public:
  Scene() : backend_(MakeGpuBackend({})), store_(backend_->memory()->OpenRecordStore(kBytes)) {}

  RecordStore& store() { return *store_; }
  Backend& backend() { return *backend_; }

  void Write(const std::vector<int64_t>& slots, uint32_t seed) {
    const Tensor rows = Random(std::ssize(slots), kWidth, seed);
    Tensor source(DType::kF32, rows.rows(), kWidth, backend_->memory());
    CopyRows(rows.view(), source.mutable_view());
    CopyRows(source.view(),
             {store_->Stage(rows.rows()), DType::kF32, rows.rows(), kWidth, kBytes, store_->memory()});
    store_->Write(slots);
    backend_->memory()->Zero(source.mutable_view());  // the record is on its way
    for (size_t i = 0; i < slots.size(); ++i) {
      const auto row = rows.view().Row<float>(static_cast<int64_t>(i));
      expected_[slots[i]].assign(row.begin(), row.end());
    }
  }
  // The records go to a tensor of the device; Agrees() looks at them.
  void Read(const std::vector<int64_t>& slots) {
    const std::byte* records = store_->Read(slots);
    Tensor& got = got_.emplace_back(DType::kF32, std::ssize(slots), kWidth, backend_->memory());
    CopyRows({records, DType::kF32, std::ssize(slots), kWidth, kBytes, store_->memory()}, got.mutable_view());
    for (const int64_t slot : slots) wanted_.push_back(expected_.at(slot));
  }
  // Whether every record was what had been written. The host waits here and nowhere else.
  bool Agrees() {
    bool same = true;
    size_t next = 0;
    for (const Tensor& tensor : got_) {
      const HostRows host(tensor.view());
      for (int64_t i = 0; i < tensor.rows(); ++i)
        same &= std::memcmp(host.view().RowBytes(i), wanted_[next++].data(), kBytes) == 0;
    }
    return same;
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<RecordStore> store_;
  std::map<int64_t, std::vector<float>> expected_;
  std::vector<Tensor> got_;
  std::vector<std::vector<float>> wanted_;
};

// Everything that a store does, some of it in a step that is recorded.
bool RunScene() {
  Scene scene;
  RecordStore& store = scene.store();
  scene.Write({0, 1, 2, 3}, 1);
  scene.Write({9, 4, 5}, 2);
  store.Prefetch(std::vector<int64_t>{1, 2});
  store.Prefetch(std::vector<int64_t>{4});
  store.Prefetch(std::vector<int64_t>{1, 2});  // no second transfer
  scene.Read({1, 2});
  scene.Read({4});
  scene.Read({5, 9});  // without a prefetch
  store.Prefetch(std::vector<int64_t>{0, 3});
  scene.Write({3, 7}, 3);  // what was prefetched is stale
  scene.Read({0, 3});
  const Tensor x = Random(1, kWidth, 4);
  scene.backend().BeginStep();
  Tensor sum = Tensor::Zeros(DType::kF32, 1, kWidth, scene.backend().memory());
  scene.backend().Add(x.view(), sum.mutable_view());
  scene.Write({8, 0}, 5);
  scene.backend().Add(x.view(), sum.mutable_view());
  scene.Read({0, 7});
  scene.Read({8});
  scene.backend().EndStep();
  store.Prefetch(std::vector<int64_t>{8});  // never read
  return scene.Agrees();
}

class GpuPinnedStore : public testing_gpu::GpuFake {
 protected:
  void TearDown() override {
    if (testing_gpu::FakeDriver::Get() == nullptr) return;
    fake().RunSideStreamsAtOnce(false);
    fake().LoseWait(0);
    fake().FailAt("", 0);
  }
  // Whether a run of the scene in a process of its own finds the records as they were written. A misuse of
  // memory, which ends that process, counts as no.
  static bool AgreesInAProcess() {
    const pid_t child = fork();
    if (child == 0) {
      dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
      bool same = false;
      try {
        same = RunScene();
      } catch (const std::exception&) {
      }
      _exit(same ? 0 : 1);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
};

TEST_F(GpuPinnedStore, RecordsComeBack) {
  EXPECT_TRUE(RunScene());
  fake().RunSideStreamsAtOnce(true);
  EXPECT_TRUE(RunScene());
}

// The device runs copies as late or as early as its events allow. Without any one of them, some record is
// wrong.
TEST_F(GpuPinnedStore, EveryEventIsNeeded) {
  const int64_t before = fake().Calls("cuStreamWaitEvent");
  ASSERT_TRUE(RunScene());
  const int64_t waits = fake().Calls("cuStreamWaitEvent") - before;
  ASSERT_EQ(waits, 4 + 6);  // of writes and of reads
  ASSERT_TRUE(AgreesInAProcess());
  for (int64_t i = 1; i <= waits; ++i) {
    fake().LoseWait(i);
    const bool late = AgreesInAProcess();
    fake().RunSideStreamsAtOnce(true);
    const bool early = AgreesInAProcess();
    fake().RunSideStreamsAtOnce(false);
    EXPECT_FALSE(late && early) << "wait " << i;
  }
}

TEST_F(GpuPinnedStore, TheHostWaitsForNothing) {
  Scene scene;
  scene.Write({0, 1}, 1);
  const auto waits = [&] { return fake().Calls("cuStreamSynchronize") + fake().Calls("cuEventSynchronize"); };
  const int64_t before = waits();
  scene.Write({2, 3}, 2);
  scene.store().Prefetch(std::vector<int64_t>{0, 2});
  scene.Read({0, 2});
  scene.Read({1});
  EXPECT_EQ(waits(), before);
  EXPECT_TRUE(scene.Agrees());
}

TEST_F(GpuPinnedStore, EveryFailingCallIsAnErrorAndLeaksNothing) {
  ASSERT_TRUE(RunScene());
  fake().RunAll();
  const int64_t live = fake().live();
  for (const char* call :
       {"cuMemHostAlloc", "cuMemAllocAsync", "cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoDAsync_v2", "cuStreamWaitEvent", "cuEventRecord", "cuEventCreate"}) {
    const int64_t before = fake().Calls(call);
    ASSERT_TRUE(RunScene());
    const int64_t calls = fake().Calls(call) - before;
    ASSERT_GT(calls, 0) << call;
    for (int64_t i = 1; i <= calls; ++i) {
      fake().FailAt(call, i);
      EXPECT_THROW(RunScene(), Error) << call << " " << i;
      fake().FailAt("", 0);
      fake().RunAll();
      EXPECT_EQ(fake().live(), live) << call << " " << i;
    }
  }
}

TEST_F(GpuPinnedStore, NamesTheTierWhereNoHostMemoryIsLeft) {
  Scene scene;
  scene.Write({0}, 1);
  fake().FailAt("cuMemHostAlloc", 1);
  try {
    scene.Write({int64_t{8} << 10}, 2);  // beyond the first 8 MiB
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_TRUE(
        std::string(error.what())
            .starts_with(
                "[cold tier] no more pinned host memory, beside 8388608 bytes of this request: [gpu] "))
        << error.what();
  }
}

TEST_F(GpuPinnedStore, MayBeDestroyedWithTransfersUnderWay) {
  const int64_t live = fake().live();
  for (const bool read : {false, true}) {
    Scene scene;
    scene.Write({0, 1, 2}, 1);
    scene.store().Prefetch(std::vector<int64_t>{1});
    if (read) scene.store().Read(std::vector<int64_t>{0, 2});
    scene.store().Stage(2);
  }
  fake().RunAll();
  EXPECT_EQ(fake().live(), live);
}

TEST_F(GpuPinnedStore, MisuseIsAProgrammerError) {
  Scene scene;
  scene.Write({3}, 1);
  const std::vector<int64_t> absent = {2};
  EXPECT_THROW(scene.store().Read(absent), CheckFailure);
  EXPECT_THROW(scene.store().Prefetch(absent), CheckFailure);
  EXPECT_THROW(scene.store().Write(absent), CheckFailure);  // nothing is staged
  scene.store().Stage(2);
  EXPECT_THROW(scene.store().Write(absent), CheckFailure);
}

using GpuPinnedStoreDeathTest = GpuPinnedStore;

TEST_F(GpuPinnedStoreDeathTest, PinnedMemoryThatIsFreedUnderATransferFaults) {
  const std::shared_ptr<Gpu> gpu = Gpu::Open();
  Tensor rows(DType::kF32, 1, kWidth, &gpu->heap());
  auto pinned = std::make_unique<gpu::Device::Pinned>(gpu->device(), kBytes);
  const std::byte* host = pinned->data();
  EXPECT_DEATH(
      {
        gpu->device().WithoutRecording([&](const gpu::Driver& d, gpu::CUstream, gpu::CUstream copies) {
          d.cuMemcpyHtoDAsync(gpu::AddressOf(rows.view().data), host, kBytes, copies);
        });
        pinned.reset();
        gpu->device().WaitForCopies();
      },
      "not pinned");
  pinned.reset();
  EXPECT_DEATH(
      {
        volatile std::byte value = *host;
        static_cast<void>(value);
      },
      "");
}

}  // namespace
}  // namespace coppice
