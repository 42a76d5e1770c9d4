// Shared by the tests of the host code over the fake device (fake/fake_driver.cpp). They run where
// COPPICE_CUDA_LIBRARY names that driver.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <type_traits>

namespace coppice::testing_gpu {

// The functions of the fake driver that are for tests.
class FakeDriver {
 public:
  static const FakeDriver* Get() {
    static const FakeDriver driver;
    return driver.library_ != nullptr && driver.fail_ != nullptr ? &driver : nullptr;
  }
  void FailAt(const char* name, int64_t in) const { fail_(name, in); }
  int64_t Calls(const char* name) const { return calls_(name); }
  // The entry point that failed last because a test asked for it.
  std::string failed() const { return failed_(); }
  // Allocations, pinned memory, streams, graphs and so on that are not freed.
  int64_t live() const { return allocations_() + pinned_() + objects_(); }
  void RunAll() const { run_all_(); }
  void LoseWait(int64_t in) const { lose_wait_(in); }
  void RunSideStreamsAtOnce(bool at_once) const { side_streams_at_once_(at_once); }
  const char* Kernel(int i, const char** arguments, int* warps) const { return kernel_(i, arguments, warps); }

 private:
  FakeDriver() {
    const char* name = std::getenv("COPPICE_CUDA_LIBRARY");
    if (name == nullptr) return;
    library_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) return;
    const auto bind = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library_, symbol));
    };
    bind(fail_, "coppice_fake_fail");
    bind(calls_, "coppice_fake_calls");
    bind(failed_, "coppice_fake_failed");
    bind(objects_, "coppice_fake_objects");
    bind(allocations_, "coppice_fake_allocations");
    bind(pinned_, "coppice_fake_pinned");
    bind(run_all_, "coppice_fake_run_all");
    bind(lose_wait_, "coppice_fake_lose_wait");
    bind(side_streams_at_once_, "coppice_fake_side_streams_at_once");
    bind(kernel_, "coppice_fake_kernel");
  }
  void* library_ = nullptr;
  void (*fail_)(const char*, int64_t) = nullptr;
  int64_t (*calls_)(const char*) = nullptr;
  const char* (*failed_)() = nullptr;
  int64_t (*objects_)() = nullptr;
  int64_t (*allocations_)() = nullptr;
  int64_t (*pinned_)() = nullptr;
  void (*run_all_)() = nullptr;
  void (*lose_wait_)(int64_t) = nullptr;
  void (*side_streams_at_once_)(bool) = nullptr;
  const char* (*kernel_)(int, const char**, int*) = nullptr;
};

class GpuFake : public testing::Test {
 protected:
  void SetUp() override {
    if (FakeDriver::Get() == nullptr) GTEST_SKIP() << "COPPICE_CUDA_LIBRARY does not name the fake driver";
  }
  const FakeDriver& fake() { return *FakeDriver::Get(); }
};

}  // namespace coppice::testing_gpu
