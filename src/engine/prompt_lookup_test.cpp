#include "engine/prompt_lookup.h"

#include <gtest/gtest.h>

#include <atomic>

#include "engine/engine.h"
#include "tiny_model.h"

namespace coppice {
namespace {

using Ids = std::vector<int32_t>;

TEST(PromptLookup, ProposesWhatFollowedTheLastPlace) {
  PromptLookup lookup(5);
  Ids text = {1, 2, 3, 4, 5, 6, 1, 2, 3, 7, 8, 9, 1, 2, 3};
  EXPECT_EQ(lookup.Propose(text, 100), Ids({7, 8, 9}));  // three at first
  lookup.Learn(3);
  text.insert(text.end(), {7, 8, 9});
  EXPECT_EQ(lookup.Propose(text, 100), Ids({1, 2, 3, 7, 8}));  // then as many as are asked for
  lookup.Learn(1);
  text.insert(text.end(), {1, 5});
  EXPECT_EQ(lookup.Propose(text, 100), Ids());  // 9 1 5 stood nowhere
  text.insert(text.end(), {3, 4, 5});
  EXPECT_EQ(lookup.Propose(text, 1), Ids({6}));  // no more than there is room for
  EXPECT_EQ(lookup.proposed(), 9);
  EXPECT_EQ(lookup.accepted(), 4);
}

TEST(PromptLookup, AProposalMayRepeatItself) {
  PromptLookup lookup(8);
  EXPECT_EQ(lookup.Propose(Ids({5, 5, 5, 5, 5}), 8), Ids({5, 5, 5}));
  PromptLookup other(8);
  EXPECT_EQ(other.Propose(Ids({1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3}), 8), Ids({4, 1, 2, 3, 4, 1}));
}

TEST(PromptLookup, ALongMatchGoesBeforeALaterOne) {
  PromptLookup lookup(8);
  // The last 5 tokens stood before 70, the last 3 alone, later, before 80.
  const Ids text = {1, 2, 3, 4, 5, 70, 71, 72, 73, 74, 9, 3, 4, 5, 80, 81, 82, 83, 1, 2, 3, 4, 5};
  EXPECT_EQ(lookup.Propose(text, 8), Ids({70, 71, 72, 73}));  // one fewer than are equal
}

TEST(PromptLookup, ShortTextsAndNoRoomGetNothing) {
  PromptLookup lookup(4);
  EXPECT_TRUE(lookup.Propose(Ids(), 4).empty());
  EXPECT_TRUE(lookup.Propose(Ids({1, 2}), 4).empty());
  EXPECT_TRUE(lookup.Propose(Ids({1, 2, 3}), 4).empty());
  EXPECT_TRUE(lookup.Propose(Ids({1, 2, 3, 1, 2, 3}), 0).empty());
  PromptLookup never(0);
  EXPECT_TRUE(never.Propose(Ids({1, 2, 3, 1, 2, 3}), 4).empty());
}

TEST(PromptLookup, PausesAfterMisses) {
  PromptLookup lookup(4);
  Ids text = {1, 2, 3, 9};
  int proposals = 0;
  for (int i = 0; i < 400; ++i) {
    text.insert(text.end(), {1, 2, 3});
    proposals += !lookup.Propose(text, 4).empty();
    lookup.Learn(0);
    text.push_back(100 + i);
  }
  EXPECT_GT(proposals, 4);
  EXPECT_LT(proposals, 30);
}

// Answers with proposals are those without, whatever samples them.
class LookupAnswers : public testing::TestWithParam<const char*> {};

TEST_P(LookupAnswers, AreTheSame) {
  const std::unique_ptr<Engine> engine = Engine::FromShape(GetParam(), {.threads = 2, .tile_rows = 24});
  for (const double temperature : {0.0, 0.7}) {
    for (const char* prune :
         {"none", "snapkv:cap=64,min=0", "random:keep=0.5,min=0", "lazyllm:layers=1/2,keep=0.5,min=0"}) {
      SCOPED_TRACE(std::string(prune) + " " + std::to_string(temperature));
      Request request;
      const Ids part = RandomPrompt(60, 320, 3);
      for (int i = 0; i < 3; ++i) request.tokens.insert(request.tokens.end(), part.begin(), part.end());
      request.max_tokens = 50;
      request.ignore_eos = true;
      request.prune = prune;
      request.sampling.temperature = temperature;
      request.sampling.top_k = 3;
      request.sampling.seed = 5;
      request.sampling.repeat_penalty = 1.1;
      request.top_log_probs = 2;
      request.confidence = true;
      const auto told = [&](int64_t lookup) {
        std::vector<TokenLogProbs> all;
        request.on_log_probs = [&](const TokenLogProbs& token) { all.push_back(token); };
        request.prompt_lookup = lookup;
        return std::pair(engine->Generate(request), all);
      };
      const auto [plain, plain_probs] = told(0);
      const auto [quick, quick_probs] = told(6);
      EXPECT_EQ(quick.tokens, plain.tokens);
      ASSERT_EQ(quick_probs.size(), plain_probs.size());
      for (size_t i = 0; i < plain_probs.size(); ++i)
        EXPECT_EQ(quick_probs[i].token.value, plain_probs[i].token.value) << i;
      EXPECT_EQ(quick.confidence->mean_log_probability, plain.confidence->mean_log_probability);
      EXPECT_EQ(quick.ledger.kv_bytes, plain.ledger.kv_bytes);
      EXPECT_EQ(quick.ledger.kv_bytes_dense, plain.ledger.kv_bytes_dense);
      EXPECT_EQ(quick.ledger.token_layers_dense(), plain.ledger.token_layers_dense());
      EXPECT_GE(quick.ledger.token_layers(), plain.ledger.token_layers());  // wrong proposals are work, too
      EXPECT_EQ(plain.proposed, 0);
      EXPECT_GE(quick.proposed, quick.accepted);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, LookupAnswers, testing::Values("tiny:f32", "tiny:q8_0"),
                         [](const auto& type) { return std::string(type.param).substr(5); });

TEST(PromptLookup, StepsCanBeCancelled) {
  const std::unique_ptr<Engine> engine = Engine::FromShape("tiny:f32", {.backend = "reference"});
  Request request;
  request.tokens = RandomPrompt(40, 320, 9);
  request.max_tokens = 50;
  request.ignore_eos = true;
  request.prompt_lookup = 7;
  std::atomic<bool> cancelled{false};
  request.cancelled = &cancelled;
  int told = 0;
  request.on_token = [&](int32_t) {
    cancelled = ++told == 3;
    return true;
  };
  EXPECT_THROW(engine->Generate(request), Cancelled);
  EXPECT_EQ(told, 3);
}

// A model that repeats itself: most proposals are right, and they save steps.
TEST(PromptLookup, TakesFewerStepsWhereTheTextRepeats) {
  const std::unique_ptr<Engine> engine = Engine::FromShape("tiny:f32", {.backend = "reference"});
  Request request;
  request.tokens = RandomPrompt(40, 320, 9);
  const Ids cycle = {11, 12, 13, 14, 15, 16, 17, 18};
  for (int i = 0; i < 10; ++i) request.forced.insert(request.forced.end(), cycle.begin(), cycle.end());
  request.max_tokens = std::ssize(request.forced);
  request.ignore_eos = true;
  request.prompt_lookup = 7;
  int steps = 0;
  request.decode = [&](DecodeStep& step) {
    ++steps;
    DecodeStep* one = &step;
    engine->DecodeTogether({&one, 1});
  };
  const Answer answer = engine->Generate(request);
  EXPECT_EQ(answer.tokens, request.forced);
  EXPECT_LT(steps, 25);
  EXPECT_GT(answer.accepted, 55);
}

}  // namespace
}  // namespace coppice
