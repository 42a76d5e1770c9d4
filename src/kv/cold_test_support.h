// Shared by the tests of the cold tier.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kv/cold_file.h"
#include "test_files.h"

namespace coppice {

// A queue that delays transfers and reorders them at random. A transfer runs when Take must wait for it, or
// else with probability 1 / `odds` per look (0: never). It exposes any reliance on the order of two transfers
// of one slot.
class LateQueue final : public IoQueue {
 public:
  LateQueue(int fd, uint32_t seed, uint32_t odds) : fd_(fd), odds_(odds), random_(seed) {}
  void Submit(Transfer& t) override {
    waiting_.push_back(&t);
    most_ = std::max(most_, waiting_.size());
  }
  Transfer* Take(bool wait) override {
    if (waiting_.empty() || (!wait && (odds_ == 0 || random_() % odds_ != 0))) return nullptr;
    std::swap(waiting_[random_() % waiting_.size()], waiting_.back());
    Transfer* t = waiting_.back();
    waiting_.pop_back();
    RunTransfer(fd_, *t);
    return t;
  }
  std::string_view kind() const override { return "late"; }
  // The most transfers that waited at the same time since the last call.
  size_t TakeMostWaiting() { return std::exchange(most_, 0); }

 private:
  int fd_;
  uint32_t odds_;
  size_t most_ = 0;
  std::mt19937 random_;
  std::vector<Transfer*> waiting_;
};

enum class Engine { kUring, kThreads, kSync, kLate };
inline constexpr Engine kEngines[] = {Engine::kUring, Engine::kThreads, Engine::kSync, Engine::kLate};

inline std::string NameOf(Engine engine) {
  return std::vector<std::string>{"uring", "threads", "sync", "late"}[static_cast<size_t>(engine)];
}

// Null if the kernel does not allow io_uring.
inline std::unique_ptr<IoQueue> MakeTestQueue(Engine engine, int fd) {
  int error = 0;
  switch (engine) {
    case Engine::kUring:
      return MakeUringQueue(fd, error);
    case Engine::kThreads:
      return MakeThreadQueue(fd);
    case Engine::kSync:
      return MakeSyncQueue(fd);
    default:
      return std::make_unique<LateQueue>(fd, 1, 4);
  }
}

// A test that runs for every engine; skipped if the kernel does not allow io_uring.
class ColdEngineTest : public testing::TestWithParam<Engine> {
 protected:
  void SetUp() override {
    const FileHandle file = OpenUnnamedFile(folder_.path(), false);
    if (MakeTestQueue(GetParam(), file.get()) == nullptr)
      GTEST_SKIP() << "the kernel does not allow io_uring";
  }
  // A store over a new file; OpenOver makes one over `file`.
  std::unique_ptr<RecordStore> Open(int64_t record_bytes, int64_t staging_bytes = 64 << 20) {
    return OpenOver(OpenUnnamedFile(folder_.path(), false), record_bytes, staging_bytes);
  }
  std::unique_ptr<RecordStore> OpenOver(FileHandle file, int64_t record_bytes,
                                        int64_t staging_bytes = 64 << 20) {
    std::unique_ptr<IoQueue> queue = MakeTestQueue(GetParam(), file.get());
    return MakeColdFile({.file = std::move(file),
                         .queue = std::move(queue),
                         .folder = folder_.path(),
                         .staging_bytes = staging_bytes},
                        record_bytes);
  }

  TempFolder folder_;
};

}  // namespace coppice
