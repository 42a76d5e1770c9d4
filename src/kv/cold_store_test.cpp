#include "kv/cold_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "kv/cold_test_support.h"

namespace coppice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Record = std::vector<std::byte>;

Record MakeRecord(int64_t bytes, uint32_t seed) {
  Record record(bytes);
  std::minstd_rand random(seed + 1);
  for (std::byte& b : record) b = static_cast<std::byte>(random() >> 8);
  return record;
}

void WriteRecord(RecordStore& store, int64_t slot, const Record& record) {
  std::byte* staged = store.Stage(1);
  std::copy(record.begin(), record.end(), staged);
  store.Write(std::span(&slot, 1));
}

void PrefetchRecord(RecordStore& store, int64_t slot) { store.Prefetch(std::span(&slot, 1)); }

Record ReadRecord(RecordStore& store, int64_t slot) {
  const std::byte* record = store.Read(std::span(&slot, 1));
  return {record, record + store.record_bytes()};
}

// Every later call must fail with the same message. The store may still be destroyed.
void ExpectBroken(RecordStore& store, const std::string& message) {
  const Record record = MakeRecord(store.record_bytes(), 0);
  EXPECT_EQ(ErrorOf([&] { WriteRecord(store, 0, record); }), message);
  EXPECT_EQ(ErrorOf([&] { PrefetchRecord(store, 0); }), message);
  EXPECT_EQ(ErrorOf([&] { ReadRecord(store, 0); }), message);
  EXPECT_EQ(ErrorOf([&] { store.Flush(); }), message);
}

int64_t OpenFiles() {
  int64_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

using ColdStoreTest = ColdEngineTest;
INSTANTIATE_TEST_SUITE_P(Engines, ColdStoreTest, testing::ValuesIn(kEngines),
                         [](const auto& test) { return NameOf(test.param); });

// Random writes, prefetches and reads of 1 to 100 slots, against a map; with a large and a small staging
// limit.
TEST_P(ColdStoreTest, RandomOperationsAgreeWithAModel) {
  constexpr int64_t kBytes = 5003;  // not a multiple of a page or a sector
  for (const int slots : {1, 2, 10, 100}) {
    for (const int64_t staging : {int64_t{64} << 20, 3 * kBytes, int64_t{1}}) {
      std::mt19937 random(static_cast<uint32_t>(slots));
      const auto store = Open(kBytes, staging);
      std::map<int64_t, Record> model;
      for (uint32_t step = 0; step < 1000; ++step) {
        const int64_t slot = static_cast<int64_t>(random() % static_cast<uint32_t>(slots));
        const uint32_t kind = random() % 16;
        if (kind < 6 || !model.contains(slot)) {
          model[slot] = MakeRecord(kBytes, step);
          WriteRecord(*store, slot, model[slot]);
        } else if (kind < 10) {
          PrefetchRecord(*store, slot);
        } else if (kind < 15) {
          ASSERT_EQ(ReadRecord(*store, slot), model[slot]) << "slot " << slot << " step " << step;
        } else {
          store->Flush();
        }
      }
      for (const auto& [slot, record] : model) ASSERT_EQ(ReadRecord(*store, slot), record);
    }
  }
}

TEST_P(ColdStoreTest, LargeRecordsComeBack) {
  constexpr int64_t kBytes = (3 << 20) + 1;
  const auto store = Open(kBytes, 4 << 20);
  for (uint32_t slot = 0; slot < 6; ++slot) WriteRecord(*store, slot, MakeRecord(kBytes, slot));
  for (uint32_t slot = 0; slot < 6; slot += 2) PrefetchRecord(*store, slot);
  for (uint32_t slot = 0; slot < 6; ++slot) EXPECT_EQ(ReadRecord(*store, slot), MakeRecord(kBytes, slot));
}

TEST_P(ColdStoreTest, OverwritesASlotThatIsBeingRead) {
  constexpr int64_t kBytes = 64 << 10;
  const auto store = Open(kBytes);
  const Record first = MakeRecord(kBytes, 1), second = MakeRecord(kBytes, 2), third = MakeRecord(kBytes, 3);
  for (int round = 0; round < 50; ++round) {
    WriteRecord(*store, 7, first);
    store->Flush();
    PrefetchRecord(*store, 7);
    WriteRecord(*store, 7, second);  // makes the prefetched data stale
    ASSERT_EQ(ReadRecord(*store, 7), second);
    PrefetchRecord(*store, 7);
    WriteRecord(*store, 7, third);
    WriteRecord(*store, 7, first);
    PrefetchRecord(*store, 7);  // while the write is under way
    PrefetchRecord(*store, 7);
    ASSERT_EQ(ReadRecord(*store, 7), first);
    ASSERT_EQ(ReadRecord(*store, 7), first);
  }
}

TEST_P(ColdStoreTest, SeveralRecordsAtOnce) {
  constexpr int64_t kBytes = 3000;
  const auto store = Open(kBytes);
  const std::vector<int64_t> slots = {4, 0, 9, 5};
  for (uint32_t round = 0; round < 3; ++round) {
    std::byte* staged = store->Stage(std::ssize(slots));
    for (size_t i = 0; i < slots.size(); ++i) {
      const Record record = MakeRecord(kBytes, 10 * round + static_cast<uint32_t>(slots[i]));
      std::copy(record.begin(), record.end(), staged + static_cast<int64_t>(i) * kBytes);
    }
    store->Write(slots);
    store->Stage(std::ssize(slots));  // the staged memory may be used again at once
    for (const auto& list : std::vector<std::vector<int64_t>>{{9}, {0, 4, 5, 9}, {5, 4}}) {
      store->Prefetch(list);
      const std::byte* read = store->Read(list);
      for (size_t i = 0; i < list.size(); ++i) {
        const std::byte* record = read + static_cast<int64_t>(i) * kBytes;
        EXPECT_EQ(Record(record, record + kBytes),
                  MakeRecord(kBytes, 10 * round + static_cast<uint32_t>(list[i])));
      }
    }
  }
}

TEST_P(ColdStoreTest, ReadsOfSlotsNeverWrittenAreProgrammerErrors) {
  const auto store = Open(16);
  WriteRecord(*store, 3, MakeRecord(16, 0));
  EXPECT_THROW(ReadRecord(*store, 2), CheckFailure);
  EXPECT_THROW(PrefetchRecord(*store, 2), CheckFailure);
  EXPECT_THROW(WriteRecord(*store, -1, MakeRecord(16, 0)), CheckFailure);
  store->Stage(2);
  const int64_t slot = 4;
  EXPECT_THROW(store->Write(std::span(&slot, 1)), CheckFailure);  // two records were staged
}

TEST_P(ColdStoreTest, NamesTheFolderWhereNoSpaceIsLeft) {
  const auto store = OpenOver(FileHandle(open("/dev/full", O_RDWR | O_CLOEXEC)), 8192);
  const std::string message = ErrorOf([&] {
    for (int64_t slot = 0; slot < 100; ++slot) WriteRecord(*store, slot, MakeRecord(8192, 0));
    store->Flush();
  });
  EXPECT_THAT(message,
              AllOf(HasSubstr(folder_.path()), HasSubstr("cannot write"), HasSubstr("no space left")));
  ExpectBroken(*store, message);
}

TEST_P(ColdStoreTest, NoticesAFileThatWasCut) {
  constexpr int64_t kBytes = 10000;
  for (const bool ahead : {false, true}) {
    FileHandle file = OpenUnnamedFile(folder_.path(), false);
    const FileHandle behind(dup(file.get()));
    const auto store = OpenOver(std::move(file), kBytes);
    for (uint32_t slot = 0; slot < 10; ++slot) WriteRecord(*store, slot, MakeRecord(kBytes, slot));
    store->Flush();
    ASSERT_EQ(ftruncate(behind.get(), 6 * kBytes + 17), 0);
    EXPECT_EQ(ReadRecord(*store, 5), MakeRecord(kBytes, 5));
    const std::string message = ErrorOf([&] {
      if (ahead) PrefetchRecord(*store, 6);
      ReadRecord(*store, 6);  // starts inside the file and ends beyond it
    });
    EXPECT_THAT(message, AllOf(HasSubstr(folder_.path()), HasSubstr("cannot read"), HasSubstr("cut")));
    ExpectBroken(*store, message);
  }
}

TEST_P(ColdStoreTest, NamesTheLimitOnFileSizes) {
  constexpr int64_t kBytes = 64 << 10;
  const auto store = Open(kBytes);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);  // this test runs in its own process
  rlimit limit = before;
  limit.rlim_cur = 10 * kBytes + 100;  // the 11th record is written in part, continued, and refused
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const std::string message = ErrorOf([&] {
    for (uint32_t slot = 0; slot < 12; ++slot) WriteRecord(*store, slot, MakeRecord(kBytes, slot));
    store->Flush();
  });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, AllOf(HasSubstr(folder_.path()), HasSubstr("the limit on file sizes")));
  ExpectBroken(*store, message);
}

TEST_P(ColdStoreTest, RefusesARecordBeyondWhatAFileCanHold) {
  const auto store = Open(1 << 20);
  const Record record = MakeRecord(1 << 20, 0);
  EXPECT_THAT(ErrorOf([&] { WriteRecord(*store, int64_t{1} << 50, record); }),
              HasSubstr("the limit on file sizes"));
  WriteRecord(*store, 0, record);  // only that one call failed
  EXPECT_EQ(ReadRecord(*store, 0), record);
}

// Destroys stores with transfers under way, including failing ones. Nothing may leak (a sanitizer checks),
// and no file may stay open.
TEST_P(ColdStoreTest, MayBeDestroyedAtAnyTime) {
  const int64_t open_before = OpenFiles();
  constexpr int64_t kBytes = 100 << 10;
  for (int round = 0; round < 20; ++round) {
    const auto store = Open(kBytes);
    for (uint32_t slot = 0; slot < 40; ++slot) WriteRecord(*store, slot, MakeRecord(kBytes, slot));
    if (round % 2 == 0) store->Flush();
    for (uint32_t slot = 0; slot < 40; slot += 3) PrefetchRecord(*store, slot);
  }
  for (int round = 0; round < 20; ++round) {
    const auto store = OpenOver(FileHandle(open("/dev/full", O_RDWR | O_CLOEXEC)), kBytes);
    ErrorOf([&] {
      for (uint32_t slot = 0; slot < 40; ++slot) WriteRecord(*store, slot, MakeRecord(kBytes, slot));
    });
  }
  EXPECT_EQ(OpenFiles(), open_before);
}

// More reads than the queue takes at a time.
TEST_P(ColdStoreTest, ReadsAheadWithoutLimit) {
  const auto store = Open(512);
  for (uint32_t slot = 0; slot < 1000; ++slot) WriteRecord(*store, slot, MakeRecord(512, slot));
  store->Flush();
  for (uint32_t slot = 0; slot < 1000; ++slot) PrefetchRecord(*store, slot);
  for (uint32_t slot = 1000; slot-- > 0;) ASSERT_EQ(ReadRecord(*store, slot), MakeRecord(512, slot));
}

// At most five records are staged at a time, and Flush frees all of that room.
TEST(ColdFile, BoundsWhatIsStaged) {
  const TempFolder folder;
  FileHandle file = OpenUnnamedFile(folder.path(), false);
  auto owned = std::make_unique<LateQueue>(file.get(), 1, 0);
  LateQueue& queue = *owned;
  const auto store = MakeColdFile({.file = std::move(file),
                                   .queue = std::move(owned),
                                   .folder = folder.path(),
                                   .staging_bytes = 5 * 1000 + 999},
                                  1000);
  for (uint32_t slot = 0; slot < 50; ++slot) WriteRecord(*store, slot, MakeRecord(1000, slot));
  EXPECT_EQ(queue.TakeMostWaiting(), 5u);
  store->Flush();
  for (uint32_t slot = 50; slot < 55; ++slot) WriteRecord(*store, slot, MakeRecord(1000, slot));
  EXPECT_EQ(queue.TakeMostWaiting(), 5u);
  for (uint32_t slot = 0; slot < 55; ++slot) ASSERT_EQ(ReadRecord(*store, slot), MakeRecord(1000, slot));
}

TEST(OpenColdFile, LeavesNoNameBehind) {
  const TempFolder folder;
  for (const ColdIo io : {ColdIo::kAuto, ColdIo::kThreads, ColdIo::kSync}) {
    const auto store = OpenColdFile({.folder = folder.path(), .io = io}, 1000);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    EXPECT_EQ(store->record_bytes(), 1000);
    WriteRecord(*store, 1, MakeRecord(1000, 1));
    EXPECT_EQ(ReadRecord(*store, 1), MakeRecord(1000, 1));
    if (io != ColdIo::kAuto) {
      EXPECT_EQ(store->kind(), io == ColdIo::kThreads ? "threads" : "sync");
    }
  }
  // The fallback for file systems without O_TMPFILE.
  const FileHandle file = OpenUnnamedFile(folder.path(), true);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_EQ(pwrite(file.get(), "x", 1, 0), 1);
}

TEST(OpenColdFile, NamesAFolderItCannotUse) {
  const TempFolder folder;
  const std::string missing = folder.path() + "/missing";
  EXPECT_THAT(ErrorOf([&] { OpenColdFile({.folder = missing}, 10); }), HasSubstr(missing));
  EXPECT_THAT(ErrorOf([&] { OpenUnnamedFile(missing, true); }), HasSubstr(missing));
  EXPECT_THAT(ErrorOf([&] { OpenColdFile({.folder = "/dev/null"}, 10); }), HasSubstr("/dev/null"));
}

TEST(OpenColdFile, TakesItsFolderFromTheEnvironment) {
  const TempFolder folder;
  const char* set = std::getenv("TMPDIR");
  const std::optional<std::string> before = set == nullptr ? std::nullopt : std::optional<std::string>(set);
  const std::string missing = folder.path() + "/missing";
  setenv("TMPDIR", missing.c_str(), 1);
  EXPECT_THAT(ErrorOf([] { OpenColdFile({}, 10); }), HasSubstr(missing));
  setenv("TMPDIR", folder.path().c_str(), 1);
  EXPECT_EQ(OpenColdFile({}, 10)->record_bytes(), 10);
  unsetenv("TMPDIR");
  EXPECT_EQ(OpenColdFile({}, 10)->record_bytes(), 10);  // in /var/tmp
  if (before) setenv("TMPDIR", before->c_str(), 1);
}

// Forbids io_uring as containers do: io_uring_setup fails with EPERM. Returns false if this process may not
// install a seccomp filter.
bool ForbidUring() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = std::size(code), .filter = code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(OpenColdFileDeathTest, FallsBackToThreadsWhereUringIsForbidden) {
  const TempFolder folder;
  EXPECT_EXIT(
      {
        if (ForbidUring()) {
          const auto store = OpenColdFile({.folder = folder.path()}, 100);
          WriteRecord(*store, 0, MakeRecord(100, 1));
          const bool same = ReadRecord(*store, 0) == MakeRecord(100, 1);
          const std::string kind(store->kind());
          const std::string why =
              ErrorOf([&] { OpenColdFile({.folder = folder.path(), .io = ColdIo::kUring}, 100); });
          std::fprintf(stderr, "%s %d %s\n", kind.c_str(), same, why.c_str());
        } else {
          std::fprintf(stderr, "threads 1 (cannot filter calls here) does not allow io_uring\n");
        }
        std::_Exit(0);
      },
      testing::ExitedWithCode(0), "threads 1 .*does not allow io_uring");
}

}  // namespace
}  // namespace coppice
