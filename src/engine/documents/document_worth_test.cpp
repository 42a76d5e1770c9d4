// What the document cache evicts: by kind of entry, by API key, by lifetime.
#include "engine/documents/document_worth.h"

#include <gtest/gtest.h>

#include "engine/documents/document_test_support.h"
#include "test_files.h"

namespace coppice::document_test::document_worth_test {
namespace {

// As an engine serves a prompt.
int64_t Serve(DocumentCache& cache, const Ids& prompt, const PrefixHint& hint = {},
              const PrefixOwner& owner = {}) {
  const PrefixUse found = cache.Find(prompt, {.point = kAfterOne}, owner, {}, hint);
  const int64_t tokens = std::ssize(prompt);
  if (cache.Wants(tokens, tokens * kToken, kAfterOne, found, hint))
    cache.Put(StateOf(prompt, kAfterOne, true, owner), hint);
  return found.rows;
}

Ids Turn(int32_t text, int64_t number) { return Text(text, 300 + 300 * number); }

TEST(DocumentWorth, AConversationOutlivesRequestsThatComeOnce) {
  const auto cache = Make({.memory_bytes = 2000 * kToken});
  Serve(*cache, Turn(1, 0));
  EXPECT_EQ(Serve(*cache, Turn(1, 1)), 300);
  for (int32_t other = 2; other < 52; ++other) Serve(*cache, Text(other, 100));  // 2.5 times the memory
  EXPECT_EQ(Serve(*cache, Turn(1, 2)), 600);
  EXPECT_EQ(RowsFound(*cache, Text(2, 101)), 0);
  EXPECT_EQ(RowsFound(*cache, Text(51, 101)), 100);
  EXPECT_LE(cache->stats().memory_bytes, 2000 * kToken);
}

TEST(DocumentWorth, RequestsThatComeOnceLeaveInTheirOrder) {
  const auto cache = Make({.memory_bytes = 1000 * kToken});
  for (int32_t text = 1; text <= 4; ++text) Serve(*cache, Text(text, 300));
  EXPECT_EQ(RowsFound(*cache, Text(1, 301)), 0);
  EXPECT_EQ(RowsFound(*cache, Text(2, 301)), 300);
  Serve(*cache, Text(5, 300));  // the third is now the least recently used one
  EXPECT_EQ(RowsFound(*cache, Text(3, 301)), 0);
  EXPECT_EQ(RowsFound(*cache, Text(2, 301)), 300);
}

TEST(DocumentWorth, TheSamePromptAgainIsNoConversation) {
  const auto cache = Make({.memory_bytes = 1000 * kToken});
  for (int i = 0; i < 3; ++i) Serve(*cache, Text(1, 300));
  for (int32_t other = 2; other < 6; ++other) Serve(*cache, Text(other, 300));
  EXPECT_EQ(RowsFound(*cache, Text(1, 301)), 0);
}

TEST(DocumentWorth, ReadsOfTheServersOwnAreNoTurns) {
  const auto cache = Make({.memory_bytes = 1000 * kToken});
  Serve(*cache, Text(1, 300));
  EXPECT_EQ(Serve(*cache, Text(1, 310), {.is_own_read = true}), 300);
  EXPECT_EQ(cache->stats().entries, 1);
  EXPECT_EQ(RowsFound(*cache, Text(1, 400)), 310) << "ten tokens are kept";
  const auto fresh = Make({.memory_bytes = 1000 * kToken});
  Serve(*fresh, Text(1, 300));
  Serve(*fresh, Text(1, 310), {.is_own_read = true});
  for (int32_t other = 2; other < 6; ++other) Serve(*fresh, Text(other, 300));
  EXPECT_EQ(RowsFound(*fresh, Text(1, 400)), 0);
}

TEST(DocumentWorth, AShortTurnLeavesNoEntryUnlessTheServerReadsIt) {
  const auto cache = Make();
  const PrefixUse found{StateOf(Text(1, 5000)), 5000};
  EXPECT_FALSE(cache->Wants(5010, 5010 * kToken, kAfterOne, found));
  EXPECT_TRUE(cache->Wants(5010, 5010 * kToken, kAfterOne, found, {.is_own_read = true}));
  EXPECT_FALSE(cache->Wants(5003, 5003 * kToken, kAfterOne, found, {.is_own_read = true}));
}

TEST(DocumentWorth, AConversationThatEndedLeaves) {
  const auto cache = Make({.memory_bytes = 2000 * kToken});
  Serve(*cache, Turn(1, 0));
  Serve(*cache, Turn(1, 1));
  for (int32_t other = 2; other < 200; ++other) Serve(*cache, Text(other, 100));  // ten times the memory
  EXPECT_EQ(RowsFound(*cache, Turn(1, 2)), 0);
}

TEST(DocumentWorth, AConversationBeginsAmongOthers) {
  const auto cache = Make({.memory_bytes = 1300 * kToken});
  for (const int32_t text : {1, 2}) {
    Serve(*cache, Turn(text, 0));
    Serve(*cache, Turn(text, 1));
  }
  Serve(*cache, Turn(3, 0));  // leaves at once
  EXPECT_EQ(Serve(*cache, Turn(3, 1)), 0);
  EXPECT_EQ(Serve(*cache, Turn(3, 2)), 600);
  EXPECT_EQ(RowsFound(*cache, Turn(1, 2)), 0) << "the conversation that waits longest";
}

TEST(DocumentWorth, NoKeyEvictsAnothersBelowItsShare) {
  const auto cache = Make({.memory_bytes = 1000 * kToken});
  const PrefixOwner one{.key = 1};
  Serve(*cache, Text(1, 450), {}, one);
  for (int32_t other = 2; other < 30; ++other) {
    const PrefixOwner two{.key = 2, .salt = static_cast<uint64_t>(other)};  // salts give no larger share
    Serve(*cache, Text(other, 100), {}, two);
    Serve(*cache, Text(other, 350), {.lifetime = std::chrono::hours(1)}, two);
  }
  EXPECT_EQ(cache->Find(Text(1, 500), {.point = kDense}, one).rows, 450);
}

TEST(DocumentWorth, OnDiskToo) {
  const TempFolder folder;
  const auto cache =
      Make({.memory_bytes = 300 * kToken, .folder = folder.Path("kept"), .disk_bytes = 1100 * kToken});
  const PrefixOwner one{.key = 1};
  const PrefixOwner two{.key = 2};
  Serve(*cache, Text(1, 300), {}, one);
  for (int32_t other = 2; other < 12; ++other) {
    Serve(*cache, Text(other, 300), {}, two);
    cache->Flush();
  }
  EXPECT_EQ(cache->Find(Text(1, 500), {.point = kDense}, one).rows, 300);
  EXPECT_LE(cache->stats().disk_bytes, 1100 * kToken);
}

TEST(DocumentWorth, ALifetimeEnds) {
  WorthClock::time_point now{std::chrono::hours(5)};
  const auto cache = Make({.memory_bytes = 1000 * kToken, .now = [&] { return now; }});
  const PrefixHint five{.lifetime = std::chrono::minutes(5)};
  Serve(*cache, Text(1, 300), five);
  auto others = [&, next = 10](int count) mutable {
    for (int i = 0; i < count; ++i, ++next) {
      Serve(*cache, Turn(next, 0));
      Serve(*cache, Turn(next, 1));
    }
  };
  now += std::chrono::seconds(299);
  others(20);
  EXPECT_EQ(Serve(*cache, Text(1, 310), five), 300);  // whose use begins the lifetime again
  now += std::chrono::seconds(299);
  others(20);
  EXPECT_EQ(RowsFound(*cache, Text(1, 310)), 300);
  now += std::chrono::seconds(2);
  others(20);
  EXPECT_EQ(RowsFound(*cache, Text(1, 310)), 0);
}

TEST(DocumentWorth, WhatIsSentWithOneKeyIsOneConversation) {
  const auto cache = Make({.memory_bytes = 1000 * kToken});
  const PrefixHint hint{.conversation = 7};
  Serve(*cache, Text(1, 300), hint);
  Serve(*cache, Text(2, 300), hint);  // it begins anew, as after a summary
  for (int32_t other = 10; other < 30; ++other) Serve(*cache, Text(other, 100));
  EXPECT_EQ(RowsFound(*cache, Text(1, 310)), 0);
  EXPECT_EQ(RowsFound(*cache, Text(2, 310)), 300);
}

}  // namespace
}  // namespace coppice::document_test::document_worth_test
