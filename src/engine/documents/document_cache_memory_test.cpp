// The document cache where memory runs out: no thread ends the process, and none waits for ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "engine/documents/document_cache.h"
#include "failing_memory.h"
#include "test_files.h"

namespace coppice::document_cache_memory_test {
namespace {

using testing::HasSubstr;

constexpr LayerPoint kPoint{1, false};
constexpr int64_t kTokens = 400;

PrefixFormat Format() {
  return {.fingerprint = {5, 22},
          .cache_type = DType::kBF16,
          .key_widths = std::vector<int64_t>(4, 16),
          .hidden = 24,
          .vocab = 1000};
}

std::vector<int32_t> Text(int32_t id) { return std::vector<int32_t>(kTokens, id); }

std::shared_ptr<const PrefixState> StateOf(int32_t id) {
  auto state = std::make_shared<PrefixState>();
  state->tokens = Text(id);
  state->point = kPoint;
  state->layers.push_back({Tensor(DType::kBF16, kTokens, 16), Tensor(DType::kBF16, kTokens, 16)});
  state->hidden = Tensor(DType::kF32, kTokens, 24);
  return state;
}

bool Finds(DocumentCache& cache, int32_t id) {
  return cache.Find(Text(id), {.point = kPoint, .tail = 1}).state != nullptr;
}

TEST(DocumentMemory, TheWriterGoesOn) {
  const TempFolder dir;
  std::promise<void> may_write;
  std::promise<void> writes;
  DocumentCache cache({.memory_bytes = 2 * StateOf(1)->bytes(), .folder = dir.Path("cache")},
                      [&, first = true]() mutable {
                        if (std::exchange(first, false)) {
                          writes.set_value();
                          may_write.get_future().wait();
                        }
                        return Format();
                      });
  for (const int32_t id : {1, 2, 3}) cache.Put(StateOf(id));  // the first must leave
  writes.get_future().wait();
  EXPECT_TRUE(Finds(cache, 1));  // so the next to leave, once there is no file of it, is the second
  {
    const NoMemoryForOthers none;
    may_write.set_value();
    while (cache.stats().last_error.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_THAT(cache.stats().last_error, HasSubstr("no memory"));
  cache.Put(StateOf(4));
  cache.Flush();
  EXPECT_LE(cache.stats().memory_bytes, 2 * StateOf(1)->bytes());
  EXPECT_TRUE(Finds(cache, 2));
  EXPECT_TRUE(Finds(cache, 4));
}

TEST(DocumentMemory, AFileThatFindsNoRoomHoldsUpNobody) {
  for (int spared = 0; spared < 8; ++spared) {
    const TempFolder dir;
    const DocumentCacheOptions options{.folder = dir.Path("cache")};
    { DocumentCache(options, Format).Put(StateOf(1)); }
    DocumentCache cache(options, Format);
    EXPECT_EQ(cache.stats().entries, 1);
    const std::vector<int32_t> tokens = Text(1);
    spared_allocations = spared;
    failing_allocations = 1000;
    try {
      cache.Find(tokens, {.point = kPoint, .tail = 1});
    } catch (const std::bad_alloc&) {
    }
    failing_allocations = 0;
    auto again = std::async(std::launch::async, [&] { return Finds(cache, 1); });
    ASSERT_EQ(again.wait_for(std::chrono::seconds(10)), std::future_status::ready) << spared;
  }
}

// Of one entry, so that it needs no memory.
class OneHeld final : public DocumentListener {
 public:
  void Hold(uint64_t id, HeldDocument) noexcept override { held = id; }
  void Move(uint64_t id, bool) noexcept override { EXPECT_EQ(held, id); }
  void Release(uint64_t id) noexcept override {
    EXPECT_EQ(held, id);
    held.reset();
  }

  std::optional<uint64_t> held;
};

// An entry that was paid for stays, even if there is no memory to tell the listener of it.
TEST(DocumentMemory, AnEntryIsKeptOrPutThrows) {
  int kept_untold = 0;
  for (int spared = 0; spared < 12; ++spared) {
    auto listener = std::make_shared<OneHeld>();
    DocumentCache cache({.listener = listener}, Format);
    std::shared_ptr<const PrefixState> state = StateOf(1);
    bool threw = false;
    spared_allocations = spared;
    failing_allocations = 1;
    try {
      cache.Put(std::move(state));
    } catch (const std::bad_alloc&) {
      threw = true;
    }
    failing_allocations = 0;
    EXPECT_EQ(cache.stats().entries, threw ? 0 : 1) << spared;
    kept_untold += !threw && !listener->held;
    cache.Erase(Text(1));
    EXPECT_FALSE(listener->held);
  }
  EXPECT_EQ(kept_untold, 1);
}

}  // namespace
}  // namespace coppice::document_cache_memory_test
