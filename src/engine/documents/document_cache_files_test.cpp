// The document cache's folder: what is on disk, and what happens to it there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/new_file.h"
#include "engine/documents/document_cache.h"
#include "engine/documents/document_test_support.h"
#include "test_files.h"

namespace coppice::document_test::document_cache_files_test {
namespace {

using testing::HasSubstr;

class DocumentFolder : public testing::Test {
 protected:
  DocumentCacheOptions Options(int64_t memory = 500, int64_t disk = 100000) const {
    return {.memory_bytes = memory * kToken, .folder = dir_.Path("cache"), .disk_bytes = disk * kToken};
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(dir_.Path("cache")))
      files.push_back(entry.path().string());
    return files;
  }
  // The cache's own thread removes files.
  void ExpectFiles(size_t count) const {
    for (int i = 0; i < 10'000 && Files().size() != count; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(Files().size(), count);
  }
  TempFolder dir_;
};

TEST_F(DocumentFolder, WhatLeavesMemoryIsOnDisk) {
  const auto cache = Make(Options());
  for (const int32_t text : {1, 2, 3}) {
    cache->Put(StateOf(Text(text, 400)));
    cache->Flush();
  }
  EXPECT_EQ(cache->stats().entries, 3);
  EXPECT_EQ(cache->stats().memory_bytes, 400 * kToken);
  for (const int32_t text : {1, 2, 3, 1}) {
    const PrefixUse use = cache->Find(Text(text, 500), {.point = kAfterOne});
    ASSERT_EQ(use.rows, 400) << text;
    EXPECT_EQ(use.state->layers[0].keys.view().data[0],
              StateOf(Text(text, 400))->layers[0].keys.view().data[0]);
    EXPECT_LE(cache->stats().memory_bytes, 500 * kToken);
  }
  EXPECT_EQ(cache->stats().last_error, "");
}

TEST_F(DocumentFolder, WritesWhileNobodyUsesIt) {
  DocumentCacheOptions options = Options(2000);
  options.write_when_idle = std::chrono::milliseconds(50);
  const auto cache = Make(options);
  cache->Put(StateOf(Text(1, 400)));
  cache->Put(StateOf(Text(2, 400)));
  ExpectFiles(2);
  EXPECT_EQ(cache->stats().memory_bytes, 800 * kToken);  // the states stay in memory
  cache->Put(StateOf(Text(3, 400)));
  ExpectFiles(3);
}

TEST_F(DocumentFolder, ShortPromptsStayInMemory) {
  {
    const auto cache = Make(Options(500));
    cache->Put(StateOf(Text(1, 255)));
    cache->Put(StateOf(Text(2, 256)));  // the first must leave
    EXPECT_EQ(cache->stats().entries, 1);
  }
  EXPECT_EQ(Files().size(), 1u);
}

TEST_F(DocumentFolder, IsThereAfterARestart) {
  {
    const auto cache = Make(Options(2000));
    cache->Put(StateOf(Text(1, 400)));
    cache->Put(StateOf(Text(2, 300)));
    cache->Put(StateOf(Text(3, 350), {1, false}, false));
  }
  const auto cache = Make(Options(2000));
  EXPECT_EQ(cache->stats().entries, 3);
  EXPECT_EQ(cache->stats().memory_bytes, 0);
  EXPECT_EQ(RowsFound(*cache, Text(1, 500)), 400);
  EXPECT_EQ(RowsFound(*cache, Text(2, 500)), 300);
  EXPECT_EQ(RowsFound(*cache, Text(3, 500)), 350);
  cache->Put(StateOf(Text(3, 350)));  // the complete one takes its place, on disk too
  ExpectFiles(2);
}

TEST_F(DocumentFolder, TheDiskHasABudgetToo) {
  {
    const auto cache = Make(Options(500, 900));
    for (const int32_t text : {1, 2, 3, 4}) {
      cache->Put(StateOf(Text(text, 400)));
      cache->Flush();
      EXPECT_LE(cache->stats().disk_bytes, 900 * kToken);
    }
    EXPECT_EQ(RowsFound(*cache, Text(1, 500)), 0);
    EXPECT_EQ(RowsFound(*cache, Text(3, 500)), 400);
    cache->Put(StateOf(Text(5, 1000)));  // larger than the disk may be
  }
  EXPECT_EQ(Files().size(), 2u);
  // The order of use outlives the process: 3 was read after 4 was written.
  const auto cache = Make(Options(500, 500));
  EXPECT_EQ(RowsFound(*cache, Text(4, 500)), 0);
  EXPECT_EQ(RowsFound(*cache, Text(3, 500)), 400);
}

TEST_F(DocumentFolder, AnotherModelsFilesAreLeftAloneAndCounted) {
  Make(Options())->Put(StateOf(Text(1, 400)));
  {
    const auto other = Make(Options(500, 900), 6);
    EXPECT_EQ(other->stats().entries, 0);
    EXPECT_GT(other->stats().disk_bytes, 400 * kToken);
    EXPECT_EQ(RowsFound(*other, Text(1, 500)), 0);
    other->Put(StateOf(Text(1, 400)));
    other->Flush();
  }
  EXPECT_EQ(Files().size(), 2u);
  EXPECT_EQ(RowsFound(*Make(Options()), Text(1, 500)), 400);
}

// Sparse files in the folder, whose lengths together are no number of bytes. tmpfs takes them, most other
// file systems not.
TEST_F(DocumentFolder, LengthsThatCannotBeAdded) {
  if (!std::filesystem::exists("/dev/shm")) GTEST_SKIP() << "no /dev/shm";
  const TempFolder folder("/dev/shm");
  std::error_code too_long;
  for (const char* name : {"a.prefix", "b.prefix", "c.prefix"}) {
    std::filesystem::resize_file(folder.Write(name, "x"), uintmax_t{3} << 61, too_long);
  }
  if (too_long) GTEST_SKIP() << "/dev/shm takes no file of that length";
  const auto cache = Make({.folder = folder.path()});
  EXPECT_EQ(cache->stats().disk_bytes, 0);  // more than the folder may hold: they left
}

// Row 24, and a process that was killed while it wrote.
TEST_F(DocumentFolder, ADamagedFileIsNotUsed) {
  Make(Options())->Put(StateOf(Text(1, 400)));
  const std::string path = Files().at(0);
  const auto size = std::filesystem::file_size(path);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(size - 10));
    file.put('\x7f');
  }
  {
    const auto cache = Make(Options());  // its head is whole
    EXPECT_EQ(cache->stats().entries, 1);
    EXPECT_EQ(RowsFound(*cache, Text(1, 500)), 0);
    EXPECT_THAT(cache->stats().last_error, HasSubstr("checksum of its hidden states"));
    EXPECT_EQ(cache->stats().entries, 0);
    ExpectFiles(0);
    cache->Put(StateOf(Text(1, 400)));
  }
  std::filesystem::resize_file(Files().at(0), size / 2);
  EXPECT_EQ(RowsFound(*Make(Options()), Text(1, 500)), 0);
}

TEST_F(DocumentFolder, WhatAKilledProcessLeftIsClearedAway) {
  Make(Options());
  const std::string left = dir_.Write("cache/a.prefix.prefix-123.part", "half");
  const std::string other = dir_.Write("cache/notes.txt", "mine");
  const std::string foreign = dir_.Write("cache/b.trace-123.part", "half");
  NewFile held(dir_.Path("cache/c.prefix"), "prefix");  // as in the hands of another process
  held.Append("half");
  Make(Options());
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_TRUE(std::filesystem::exists(other));
  EXPECT_TRUE(std::filesystem::exists(foreign));
  held.Commit();
  EXPECT_TRUE(std::filesystem::exists(dir_.Path("cache/c.prefix")));
}

TEST_F(DocumentFolder, AFileThatVanishesIsAMiss) {
  const auto cache = Make(Options());
  cache->Put(StateOf(Text(1, 400)));
  cache->Flush();
  cache->Put(StateOf(Text(2, 400)));  // 1 is on disk alone
  for (const std::string& file : Files()) std::filesystem::remove(file);
  EXPECT_EQ(RowsFound(*cache, Text(1, 500)), 0);
  EXPECT_EQ(RowsFound(*cache, Text(2, 500)), 400);
}

TEST_F(DocumentFolder, AFolderThatCannotBeWritten) {
  const auto cache = Make(Options());
  cache->Put(StateOf(Text(1, 400)));
  std::filesystem::remove_all(dir_.Path("cache"));
  cache->Put(StateOf(Text(2, 400)));
  cache->Flush();
  EXPECT_THAT(cache->stats().last_error, HasSubstr("cannot create"));
  EXPECT_EQ(RowsFound(*cache, Text(2, 500)), 400);  // what fits in memory is kept there
  EXPECT_THAT(ErrorOf([&] { Make({.folder = dir_.Write("file", "x")}); }), HasSubstr("not a folder"));
  EXPECT_THAT(ErrorOf([&] { Make({.folder = dir_.Path("no/such")}); }), HasSubstr("cannot create"));
}

TEST_F(DocumentFolder, SaveRestoreErase) {
  const std::string path = dir_.Path("slot.bin");
  const auto cache = Make();
  EXPECT_THAT(ErrorOf([&] { cache->Save(Text(1, 400), path); }), HasSubstr("nothing of this prompt"));
  cache->Put(StateOf(Text(1, 400)));
  cache->Put(StateOf(Text(2, 300)));
  const DocumentCache::Saved saved = cache->Save(Text(1, 450), path);
  EXPECT_EQ(saved.tokens, 400);
  EXPECT_EQ(saved.bytes, 400 * kToken);
  EXPECT_EQ(cache->Erase(Text(1, 399)), 0);  // it has a token more
  EXPECT_EQ(cache->Erase(Text(1, 450)), 400);
  EXPECT_EQ(RowsFound(*cache, Text(1, 500)), 0);
  EXPECT_EQ(RowsFound(*cache, Text(2, 500)), 300);

  const auto restarted = Make();
  EXPECT_THAT(ErrorOf([&] { restarted->Restore(path, {1, false}); }), HasSubstr("chooses from layer 1 on"));
  EXPECT_THAT(ErrorOf([&] { Make({}, 6)->Restore(path); }), HasSubstr("another model"));
  EXPECT_THAT(ErrorOf([&] { Make({.memory_bytes = 399 * kToken})->Restore(path); }), HasSubstr("do not fit"));
  EXPECT_EQ(restarted->stats().entries, 0);
  EXPECT_EQ(restarted->Restore(path, kAfterOne).tokens, 400);
  EXPECT_EQ(RowsFound(*restarted, Text(1, 500)), 400);
}

TEST_F(DocumentFolder, SaveAndRestoreCanBeCancelled) {
  const std::string path = dir_.Path("slot.bin");
  const auto cache = Make();
  cache->Put(StateOf(Text(1, 400)));
  const std::atomic<bool> gone{true};
  const RunControl control{.progress = {}, .cancelled = &gone};
  EXPECT_THROW(cache->Save(Text(1, 450), path, {}, INT64_MAX, control), Cancelled);
  EXPECT_EQ(dir_.CountFiles(), 0u);
  cache->Save(Text(1, 450), path);
  const auto restarted = Make();
  EXPECT_THROW(restarted->Restore(path, kAfterOne, 0, control), Cancelled);
  EXPECT_EQ(restarted->stats().entries, 0);
}

// The first file that is written needs the format, which blocks here as a slow disk would.
TEST_F(DocumentFolder, FlushGivesUpWhenItsTimeIsOver) {
  std::promise<void> disk;
  const std::shared_future<void> answers = disk.get_future().share();
  DocumentCache cache(Options(), [answers] {
    answers.wait();
    return Format();
  });
  cache.Put(StateOf(Text(1, 400)));
  cache.Put(StateOf(Text(2, 300)));
  EXPECT_FALSE(cache.FlushWithin(std::chrono::milliseconds(20)));
  EXPECT_EQ(cache.stats().disk_bytes, 0);
  disk.set_value();
  EXPECT_TRUE(cache.FlushWithin(std::chrono::hours(1)));
  EXPECT_GT(cache.stats().disk_bytes, 700 * kToken);
}

TEST_F(DocumentFolder, ErrorsAreToldAndCounted) {
  std::vector<std::string> told;
  DocumentCacheOptions options = Options();
  options.on_error = [&](const std::string& error) { told.push_back(error); };
  const auto cache = Make(options);
  std::filesystem::remove_all(dir_.Path("cache"));
  cache->Put(StateOf(Text(1, 400)));
  cache->Flush();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0], cache->stats().last_error);
  EXPECT_EQ(cache->stats().errors, 1);
}

TEST_F(DocumentFolder, OwnersShareNothing) {
  const std::vector<PrefixOwner> owners = {{}, {1, 0}, {2, 0}, {2, 1}, {0, 1}};
  const auto rows = [&](DocumentCache& cache, const PrefixOwner& owner) {
    return cache.Find(Text(1, 500), {kAfterOne, 1}, owner).rows;
  };
  const auto own = [](size_t i) { return 400 - 10 * static_cast<int64_t>(i); };
  {
    const auto cache = Make(Options(3000, 9000));
    for (size_t i = 0; i < owners.size(); ++i) {
      for (size_t j = 0; j < owners.size(); ++j)
        EXPECT_EQ(rows(*cache, owners[j]), j < i ? own(j) : 0) << i << " " << j;
      // Shorter than the entries of the owners before it: if they were shared, it would not be stored.
      cache->Put(StateOf(Text(1, own(i)), kAfterOne, true, owners[i]));
    }
    EXPECT_EQ(cache->stats().entries, 5);
    const std::string path = dir_.Path("slot.bin");
    EXPECT_EQ(cache->Save(Text(1, 450), path, owners[2]).tokens, 380);
    EXPECT_THAT(ErrorOf([&] { cache->Restore(path, kNoPoint, 1); }), HasSubstr("another API key"));
    EXPECT_THAT(ErrorOf([&] { cache->Restore(path); }), HasSubstr("another API key"));
    EXPECT_EQ(cache->Restore(path, kNoPoint, 2).tokens, 380);
    EXPECT_EQ(cache->Erase(Text(1, 450), owners[1]), 390);
    EXPECT_EQ(rows(*cache, owners[1]), 0);
    EXPECT_EQ(rows(*cache, owners[0]), 400);
  }
  const auto again = Make(Options(3000, 9000));  // from its files
  EXPECT_EQ(again->stats().entries, 4);
  for (size_t j = 0; j < owners.size(); ++j) EXPECT_EQ(rows(*again, owners[j]), j == 1 ? 0 : own(j)) << j;
}

TEST_F(DocumentFolder, ErasedMeansOnDiskToo) {
  const auto cache = Make(Options());
  cache->Put(StateOf(Text(1, 400)));
  cache->Flush();
  EXPECT_EQ(Files().size(), 1u);
  EXPECT_EQ(cache->Erase(Text(1, 400)), 400);
  EXPECT_TRUE(Files().empty());
}

// Under the thread sanitizer as well.
TEST_F(DocumentFolder, ReadingPausesAndCanBeCancelled) {
  { Make(Options())->Put(StateOf(Text(1, 400))); }
  const auto cache = Make(Options());
  std::atomic<bool> cancelled = false;
  int pauses = 0;
  const RunControl control{.progress = {}, .cancelled = &cancelled, .pause = [&] {
                             if (++pauses == 5) cancelled = true;
                           }};
  EXPECT_THROW(cache->Find(Text(1, 500), {.point = kAfterOne}, {}, control), Cancelled);
  cancelled = false;
  EXPECT_EQ(cache->Find(Text(1, 500), {.point = kAfterOne}, {}, control).rows, 400);
  EXPECT_GT(pauses, 10);
  EXPECT_EQ(cache->stats().errors, 0);
}

// As in the server, where one job computes at a time: while one that reads a file pauses, another one that
// wants the same file has the turn.
TEST_F(DocumentFolder, ReadersOfOneFileTakeTurns) {
  { Make(Options())->Put(StateOf(Text(1, 400))); }
  const auto cache = Make(Options());
  std::mutex turn;
  std::vector<std::thread> jobs;
  for (int job = 0; job < 3; ++job) {
    jobs.emplace_back([&] {
      std::unique_lock mine(turn);
      const RunControl control{.progress = {}, .cancelled = nullptr, .pause = [&] {
                                 mine.unlock();
                                 std::this_thread::sleep_for(std::chrono::milliseconds(2));
                                 mine.lock();
                               }};
      EXPECT_EQ(cache->Find(Text(1, 500), {.point = kAfterOne}, {}, control).rows, 400);
    });
  }
  for (std::thread& job : jobs) job.join();
}

TEST_F(DocumentFolder, ManyThreads) {
  const auto cache = Make(Options(1000, 3000));
  std::atomic<int64_t> found = 0;
  std::vector<std::thread> threads;
  for (int32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int32_t round = 0; round < 60; ++round) {
        const int32_t text = (round * 5 + t * 3) % 11;
        const PrefixUse use = cache->Find(Text(text, 400), {.point = kAfterOne});
        if (use.rows > 0) {
          EXPECT_EQ(use.state->tokens, Text(text, 300));
          EXPECT_EQ(use.state->hidden.rows(), 300);
          ++found;
        } else {
          cache->Put(StateOf(Text(text, 300)));
        }
        if (round % 20 == 19) cache->Erase(Text(text, 400));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  cache->Flush();
  EXPECT_GT(found, 20);
  EXPECT_EQ(cache->stats().last_error, "");
  EXPECT_LE(cache->stats().memory_bytes, 1000 * kToken);
  EXPECT_LE(cache->stats().disk_bytes, 3000 * kToken);
}

}  // namespace
}  // namespace coppice::document_test::document_cache_files_test
