// The document cache by itself, in memory: what is found, what is kept, and what leaves first.
#include "engine/documents/document_cache.h"

#include <gtest/gtest.h>

#include "engine/documents/document_test_support.h"

namespace coppice::document_test::document_cache_test {
namespace {

TEST(DocumentCache, TheLongestBeginningInCommon) {
  const auto cache = Make();
  EXPECT_EQ(RowsFound(*cache, Text(1, 500)), 0);
  cache->Put(StateOf(Text(1, 400)));
  cache->Put(StateOf(Joined(Text(1, 300), Text(2, 100))));
  EXPECT_EQ(StateOf(Text(1, 400))->bytes(), 400 * kToken);
  EXPECT_EQ(RowsFound(*cache, Text(1, 500)), 400);
  EXPECT_EQ(RowsFound(*cache, Text(1, 400)), 399);  // a row must be left
  EXPECT_EQ(RowsFound(*cache, Text(1, 400), kDense, 50), 350);
  EXPECT_EQ(RowsFound(*cache, Text(1, 400), kDense, 399), 0);
  EXPECT_EQ(RowsFound(*cache, Joined(Text(1, 350), Text(3, 50))), 350);
  EXPECT_EQ(RowsFound(*cache, Joined(Text(1, 300), Text(2, 150))), 400);
  EXPECT_EQ(RowsFound(*cache, Joined(Text(1, 70), Text(3, 50))), 70);
  EXPECT_EQ(RowsFound(*cache, Joined(Text(1, 3), Text(3, 50))), 0);  // too little to matter
  EXPECT_EQ(RowsFound(*cache, Text(9, 500)), 0);
  EXPECT_EQ(cache->stats().hits, 6);
  EXPECT_EQ(cache->stats().misses, 4);
}

TEST(DocumentCache, OnlyStatesFromBeforeTheFirstChoice) {
  const auto cache = Make();
  const Ids prompt = Text(1, 500);
  cache->Put(StateOf(Text(1, 500), kDense));
  EXPECT_EQ(RowsFound(*cache, prompt, kAfterOne), 0);
  EXPECT_EQ(RowsFound(*cache, prompt, kDense), 499);
  cache->Put(StateOf(Text(1, 400), kAfterOne));
  EXPECT_EQ(RowsFound(*cache, prompt, {1, false}), 0);
  EXPECT_EQ(RowsFound(*cache, prompt, kAfterOne), 400);
  EXPECT_EQ(RowsFound(*cache, prompt, {2, false}), 400);
  EXPECT_EQ(RowsFound(*cache, prompt, {}), 0);
  EXPECT_EQ(cache->Find(prompt, {.point = kDense}).state->point, kDense);  // saves more
  // Half the tokens of all layers against all of a third of them.
  const Ids half = Joined(Text(7, 250), Text(8, 250));
  cache->Put(StateOf(Joined(Text(7, 250), Text(9, 100)), kDense));
  cache->Put(StateOf(half, kAfterOne));
  EXPECT_EQ(cache->Find(half, {.point = kDense}).rows, 250);
  EXPECT_EQ(cache->Find(half, {.point = {3, false}}).rows, 499);
}

TEST(DocumentCache, WhatIsWorthKeeping) {
  const auto cache = Make({.memory_bytes = 1000 * kToken});
  EXPECT_TRUE(cache->Wants(500, 500 * kToken, kAfterOne, {}));
  EXPECT_TRUE(cache->Wants(4, 4 * kToken, kAfterOne, {}));
  EXPECT_FALSE(cache->Wants(3, 3 * kToken, kAfterOne, {}));        // cheap to compute again
  EXPECT_FALSE(cache->Wants(1001, 1001 * kToken, kAfterOne, {}));  // larger than the cache
  EXPECT_FALSE(cache->Wants(500, 500 * kToken, {}, {}));
  const PrefixUse found{StateOf(Text(1, 400)), 400};
  EXPECT_TRUE(cache->Wants(656, 656 * kToken, kAfterOne, found));
  EXPECT_FALSE(cache->Wants(533, 533 * kToken, kAfterOne, found));
  EXPECT_TRUE(cache->Wants(534, 534 * kToken, kAfterOne, found));  // a quarter of it is new
  EXPECT_TRUE(cache->Wants(401, 401 * kToken, kDense, found));     // the states found are not as deep
}

TEST(DocumentCache, ALongerPromptTakesThePlaceOfItsBeginning) {
  const auto cache = Make();
  cache->Put(StateOf(Text(1, 300)));
  cache->Put(StateOf(Text(1, 600)));
  EXPECT_EQ(cache->stats().entries, 1);
  cache->Put(StateOf(Text(1, 300)));  // and not the other way round
  EXPECT_EQ(cache->stats().entries, 1);
  EXPECT_EQ(RowsFound(*cache, Text(1, 700)), 600);
  cache->Put(StateOf(Text(1, 700), kDense));  // serves others
  EXPECT_EQ(cache->stats().entries, 2);
  cache->Put(StateOf(Text(2, 300), {1, false}, false));  // of a cancelled prefill
  EXPECT_EQ(cache->stats().entries, 3);
  cache->Put(StateOf(Text(2, 300), kAfterOne));
  EXPECT_EQ(cache->stats().entries, 3);
  cache->Put(StateOf(Text(2, 300), {1, false}, false));
  EXPECT_EQ(cache->stats().entries, 3);
}

TEST(DocumentCache, TheLeastRecentlyUsedLeaves) {
  const auto cache = Make({.memory_bytes = 1000 * kToken});
  cache->Put(StateOf(Text(1, 400)));
  cache->Put(StateOf(Text(2, 400)));
  EXPECT_EQ(RowsFound(*cache, Text(1, 500)), 400);  // used
  cache->Put(StateOf(Text(3, 400)));
  EXPECT_EQ(cache->stats().memory_bytes, 800 * kToken);
  EXPECT_EQ(RowsFound(*cache, Text(1, 500)), 400);
  EXPECT_EQ(RowsFound(*cache, Text(2, 500)), 0);
  EXPECT_EQ(RowsFound(*cache, Text(3, 500)), 400);
}

TEST(DocumentCache, ManyShortPromptsLeaveAsFewLongOnesDo) {
  const auto cache = Make({.most_entries = 10});
  for (int32_t text = 1; text <= 25; ++text) cache->Put(StateOf(Text(text, 20)));
  EXPECT_EQ(cache->stats().entries, 10);
  EXPECT_EQ(RowsFound(*cache, Text(15, 30)), 0);
  EXPECT_EQ(RowsFound(*cache, Text(16, 30)), 20);
}

TEST(DocumentCache, StatesOutliveTheirEntry) {
  const auto cache = Make({.memory_bytes = 500 * kToken});
  cache->Put(StateOf(Text(1, 400)));
  const PrefixUse use =
      cache->Find(Text(1, 300), {.point = kAfterOne});  // none that goes on: no conversation
  cache->Put(StateOf(Text(2, 400)));
  EXPECT_EQ(RowsFound(*cache, Text(1, 500)), 0);
  EXPECT_EQ(use.state->tokens, Text(1, 400));
}

}  // namespace
}  // namespace coppice::document_test::document_cache_test
