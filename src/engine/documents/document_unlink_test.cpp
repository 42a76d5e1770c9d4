// Files leave the folder while nobody waits: to remove gigabytes may take seconds.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <thread>

#include "engine/documents/document_cache.h"
#include "engine/documents/document_test_support.h"
#include "test_files.h"

namespace {

std::atomic<int> removals{0};
std::atomic<bool> may_remove{true};

}  // namespace

// In place of the C library's, for all of this program: a file system that is slow when the test says so.
extern "C" int unlink(const char* path) noexcept {
  ++removals;
  while (!may_remove) usleep(1000);
  return unlinkat(AT_FDCWD, path, 0);
}

namespace coppice::document_test::document_unlink_test {
namespace {

// /metrics asks for stats(), and requests for the rest. If the cache removed the file with its lock held, the
// calls would not return before the test lets it.
TEST(DocumentUnlink, OthersGoOnMeanwhile) {
  const TempFolder folder;
  DocumentCache cache({.folder = folder.path()}, [] { return Format(); });
  for (const int32_t text : {1, 2}) cache.Put(StateOf(Text(text, 300)));
  cache.Flush();
  const int before = removals;
  may_remove = false;
  auto erased = std::async(std::launch::async, [&] { return cache.Erase(Text(1, 310)); });
  for (int i = 0; i < 5000 && removals == before; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(removals, before + 1);
  auto others = std::async(std::launch::async, [&] {
    cache.Put(StateOf(Text(3, 300)));
    return cache.stats().entries + RowsFound(cache, Text(2, 310), kAfterOne);
  });
  EXPECT_EQ(others.wait_for(std::chrono::seconds(5)), std::future_status::ready);
  EXPECT_EQ(erased.wait_for(std::chrono::seconds(0)), std::future_status::timeout) << "it waits for its file";
  may_remove = true;
  EXPECT_EQ(others.get(), 2 + 300);
  EXPECT_EQ(erased.get(), 300);
}

}  // namespace
}  // namespace coppice::document_test::document_unlink_test
