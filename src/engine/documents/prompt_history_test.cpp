// The record of earlier prompts: which one a prompt is compared with, what is forgotten, and what owners see.
#include "engine/documents/prompt_history.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <thread>

#include "engine/documents/document_test_support.h"

namespace coppice::document_test::prompt_history_test {
namespace {

uint64_t Keep(PromptHistory& history, const std::string& name, const Ids& prompt, const Ids& answer = {},
              const PrefixOwner& owner = {}) {
  const uint64_t number = history.Add(owner, {.request = name,
                                              .tokens = std::make_shared<const Ids>(prompt),
                                              .prompt_tokens = std::ssize(prompt),
                                              .read = {},
                                              .sketch = PromptSketch(prompt)});
  history.End(number, owner, answer, std::ssize(prompt), NotKept::kKept);
  return number;
}

PromptHistory::Comparison Compared(const PromptHistory& history, const Ids& prompt,
                                   const PrefixOwner& owner = {}) {
  return history.Compare(prompt, PromptSketch(prompt), owner);
}

std::string Chosen(const PromptHistory& history, const Ids& prompt, const PrefixOwner& owner = {}) {
  const auto found = Compared(history, prompt, owner);
  return found.earlier ? found.earlier->request : "";
}

TEST(PromptSketch, EstimatesWhatTwoPromptsShare) {
  const Ids text = Random(1, 20000);
  const Ids half = Joined(Random(2, 10000), Ids(text.begin(), text.begin() + 10000));
  const Ids few = Random(3, 10);
  EXPECT_EQ(PromptSketch(text).ShareIn(PromptSketch(text)), 1);
  EXPECT_LT(PromptSketch(text).ShareIn(PromptSketch(Random(4, 20000))), 0.01);
  EXPECT_NEAR(PromptSketch(half).ShareIn(PromptSketch(text)), 0.5, 0.08);
  // A small one within a large one, and the other way round.
  const Ids part(text.begin() + 5000, text.begin() + 7000);
  EXPECT_GT(PromptSketch(part).ShareIn(PromptSketch(text)), 0.98);
  EXPECT_NEAR(PromptSketch(text).ShareIn(PromptSketch(part)), 0.1, 0.08);
  EXPECT_EQ(PromptSketch(few).ShareIn(PromptSketch(few)), 0) << "too little to tell";
  EXPECT_EQ(PromptSketch().ShareIn(PromptSketch(text)), 0);
  EXPECT_EQ(PromptSketch(Ids(100000, 5)).ShareIn(PromptSketch(text)), 0) << "one run, again and again";
}

TEST(PromptHistory, TheLongestBeginningInCommonThenTheLatest) {
  PromptHistory history({});
  EXPECT_EQ(Chosen(history, Random(1, 100)), "");
  Keep(history, "a", Random(1, 100), Random(2, 10));
  Keep(history, "b", Joined(Random(1, 50), Random(3, 60)));
  Keep(history, "c", Joined(Random(1, 50), Random(4, 60)));
  EXPECT_EQ(Chosen(history, Joined(Random(1, 60), Random(9, 9))), "a");
  EXPECT_EQ(Chosen(history, Joined(Random(1, 50), Random(9, 9))), "c");
  const auto found = Compared(history, Joined(Joined(Random(1, 100), Random(2, 10)), Random(9, 9)));
  EXPECT_EQ(found.shared, 110) << "with the answer";
  EXPECT_EQ(found.common, 110);
  EXPECT_EQ(found.earlier->prompt_tokens, 100);
  EXPECT_EQ(Chosen(history, Random(8, 100)), "") << "shares nothing";
}

// A clock in the system prompt has changed; another conversation began after that.
TEST(PromptHistory, TheConversationAlthoughAnotherSharesMore) {
  PromptHistory history({});
  const Ids head = Random(1, 20);
  const Ids before = Joined(head, {7});
  const Ids after = Joined(head, {8});
  const Ids system = Random(2, 600);
  const Ids talk = Random(3, 2000);
  Keep(history, "same", Joined(Joined(before, system), talk));
  Keep(history, "other", Joined(Joined(after, system), Random(4, 300)));
  Keep(history, "title", Joined(head, Random(5, 100)));
  const auto found = Compared(history, Joined(Joined(Joined(after, system), talk), Random(6, 50)));
  EXPECT_EQ(found.shared, 621);
  EXPECT_EQ(found.earlier->request, "same");
  EXPECT_EQ(found.common, 20);
  // A new conversation goes on from what all share.
  EXPECT_EQ(Chosen(history, Joined(Joined(after, system), Random(7, 50))), "other");
}

TEST(PromptHistory, APromptThatGoesOnReplacesItsBeginning) {
  PromptHistory history({});
  Ids prompt = Random(1, 100);
  for (uint32_t turn = 0; turn < 200; ++turn) {
    const Ids answer = Random(2 + turn, 7);
    Keep(history, std::to_string(turn), prompt, answer);
    prompt = Joined(Joined(prompt, answer), Random(1000 + turn, 5));
    EXPECT_EQ(history.prompts(), 1);
  }
  EXPECT_EQ(history.tokens(), 100 + 199 * 12 + 7);
  Keep(history, "other", Random(9, 100));
  EXPECT_EQ(Chosen(history, prompt), "199");
}

TEST(PromptHistory, IsBounded) {
  PromptHistory history({.tokens = 10000, .prompts = 16, .prompts_of_key = 40});
  for (uint32_t i = 0; i < 100; ++i) Keep(history, std::to_string(i), Random(i, 50));
  EXPECT_EQ(history.prompts(), 16);
  EXPECT_EQ(history.tokens(), 800);
  EXPECT_EQ(Chosen(history, Random(99, 60)), "99");
  EXPECT_EQ(Chosen(history, Random(84, 60)), "84");
  EXPECT_EQ(Chosen(history, Random(83, 60)), "");
  Keep(history, "long", Random(200, 9800));
  EXPECT_LE(history.tokens(), 10000);
  EXPECT_EQ(Chosen(history, Random(200, 60)), "long");
  Keep(history, "longer", Random(300, 20000), Random(301, 10));
  EXPECT_EQ(history.prompts(), 1);
  EXPECT_EQ(history.tokens(), 10000);
  EXPECT_EQ(Compared(history, Random(300, 20000)).shared, 10000);
  for (uint32_t i = 0; i < 100; ++i) Keep(history, std::to_string(i), Random(i, 50), {}, {0, i});
  EXPECT_EQ(history.prompts(), 40);
  history.End(1, {}, Random(1, 10), 0, NotKept::kKept);  // long gone
  history.End(12345, {}, Random(1, 10), 0, NotKept::kKept);
}

TEST(PromptHistory, AnAnswerBeyondTheBoundIsCut) {
  PromptHistory history({.tokens = 1000});
  Keep(history, "a", Random(1, 900), Random(2, 500));
  EXPECT_EQ(history.tokens(), 1000);
  EXPECT_EQ(Compared(history, Joined(Random(1, 900), Random(2, 500))).shared, 1000);
}

// One owner learns nothing of another, and loses nothing to another key, or to a salt that sends more.
TEST(PromptHistory, OwnersAreApart) {
  PromptHistory history({.keys = 2, .tokens = 20000, .prompts = 16, .prompts_of_key = 40});
  const PrefixOwner one{1, 0};
  const PrefixOwner two{2, 0};
  const PrefixOwner salted{1, 5};
  const Ids prompt = Random(1, 500);
  Keep(history, "one", prompt, {}, one);
  for (const PrefixOwner& other : {two, salted, PrefixOwner{}}) {
    EXPECT_EQ(Compared(history, prompt, other).shared, 0);
    EXPECT_EQ(Chosen(history, prompt, other), "");
  }
  for (uint32_t i = 0; i < 100; ++i) {
    Keep(history, "two", Random(100 + i, 3000), {}, two);
    Keep(history, "salted", Random(100 + i, 3000), {}, salted);
    EXPECT_EQ(Chosen(history, prompt, one), "one");
    EXPECT_EQ(Compared(history, prompt, two).shared, 0);
  }
  EXPECT_LE(history.tokens(), 20000);
}

TEST(PromptHistory, ThreadsAtTheSameTime) {
  PromptHistory history({.tokens = 50000});
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&history, t] {
      for (uint32_t i = 0; i < 100; ++i) {
        const Ids prompt = Joined(Random(t % 2, 200), Random(i, 100));
        (void)Compared(history, prompt, {0, t % 2});
        Keep(history, "x", prompt, Random(i + 1, 20), {0, t % 2});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(history.tokens(), 50000);
  EXPECT_GE(Compared(history, Random(0, 200), {0, 0}).shared, 200);
}

}  // namespace
}  // namespace coppice::document_test::prompt_history_test
