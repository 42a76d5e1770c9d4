// Request::only_if_it_pays: beside the document cache, a dense run where it costs no more than the method.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/dry_run.h"
#include "engine/engine.h"
#include "policies/registry.h"
#include "tests_support.h"

namespace coppice {
namespace {

using Ids = std::vector<int32_t>;

constexpr const char* kSlim = "sliminfer:layers=2/3,keep=128/64,block=16,last=1,min=0";
constexpr const char* kCoppice = "coppice:layers=1/2/3,keep=0.3/0.2/0.1,floor=16,last=8,queries=4/4/1,min=0";

Ids Text(int32_t seed, int64_t tokens) {
  Ids ids;
  for (int64_t i = 0; i < tokens; ++i) ids.push_back(static_cast<int32_t>((seed * 89 + i * i * 7 + i) % 320));
  return ids;
}

Ids Joined(Ids first, const Ids& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

class OnlyIfItPays : public testing::Test {
 protected:
  void SetUp() override {
    if (!MakeBackendOrSkip("cpu", {})) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
  }
  static std::unique_ptr<Engine> Load() {
    return Engine::FromShape(
        "tiny:f32",
        {.threads = 2, .tile_rows = 64, .documents = DocumentCacheOptions{.memory_bytes = 64 << 20}});
  }
  static Request Ask(Ids tokens, const std::string& prune, bool pays = true) {
    Request request;
    request.tokens = std::move(tokens);
    request.max_tokens = 2;
    request.sampling.temperature = 0;
    request.prune = prune;
    request.only_if_it_pays = pays;
    return request;
  }
  // What a prefill costs that takes nothing over.
  static double Fresh(Request request) {
    request.use_documents = false;
    return Load()->Generate(request).ledger.prefill_flops();
  }
  const Ids document_ = Text(1, 500);
};

TEST_F(OnlyIfItPays, AReadDocumentIsAnsweredDensely) {
  for (const char* method : {kSlim, kCoppice, "lazyllm:layers=2,keep=0.5,min=0", "xattention:min=0",
                             "random:keep=0.5,min=0", "quest:min=0+random:keep=0.5,min=0"}) {
    const std::unique_ptr<Engine> engine = Load();
    engine->Generate(Ask(document_, "none"));
    const Request question = Ask(Joined(document_, Text(2, 20)), method);
    const Request dense = Ask(question.tokens, "none");
    const Answer answer = engine->Generate(question);
    EXPECT_FALSE(answer.prune_active) << method;
    EXPECT_THAT(answer.prune_reason, testing::HasSubstr("dense costs less here")) << method;
    EXPECT_NE(answer.prune_spec, "none") << "the method stands aside, and stays named";
    EXPECT_EQ(answer.cached_tokens(), 500) << method;
    EXPECT_EQ(answer.tokens, Load()->Generate(dense).tokens) << method;
    EXPECT_LT(answer.ledger.prefill_flops(), 0.5 * Fresh(question)) << method;
  }
}

// What these save is memory, and work of later tokens.
TEST_F(OnlyIfItPays, MethodsThatSaveNothingOfAPrefillAct) {
  for (const char* method : {"snapkv:cap=64,window=16,min=0", "h2o:min=0", "streamingllm:recent=64,min=0"}) {
    const std::unique_ptr<Engine> engine = Load();
    engine->Generate(Ask(document_, "none"));
    const Answer answer = engine->Generate(Ask(Joined(document_, Text(2, 20)), method));
    EXPECT_TRUE(answer.prune_active) << method << ": " << answer.prune_reason;
  }
}

TEST_F(OnlyIfItPays, TheSameCacheDecidesTheSame) {
  std::string reason;
  for (int round = 0; round < 3; ++round) {
    const std::unique_ptr<Engine> engine = Load();
    engine->Generate(Ask(document_, "none"));
    const Answer answer = engine->Generate(Ask(Joined(document_, Text(2, 20)), kCoppice));
    if (round == 0) reason = answer.prune_reason;
    EXPECT_EQ(answer.prune_reason, reason);
  }
}

TEST_F(OnlyIfItPays, WhoInsistsIsPruned) {
  const std::unique_ptr<Engine> engine = Load();
  engine->Generate(Ask(document_, "none"));
  const Request question = Ask(Joined(document_, Text(2, 20)), kCoppice, false);
  const Answer answer = engine->Generate(question);
  EXPECT_TRUE(answer.prune_active);
  EXPECT_EQ(answer.prune_reason, "");
}

TEST_F(OnlyIfItPays, APrunedDocumentAndANewOneArePruned) {
  const std::unique_ptr<Engine> engine = Load();
  for (const Ids& prompt : {Joined(document_, Text(2, 20)), Joined(document_, Text(3, 30)), Text(4, 400)}) {
    const Answer answer = engine->Generate(Ask(prompt, kSlim));
    EXPECT_TRUE(answer.prune_active) << answer.prune_reason;
  }
  // A few tokens in common with a dense run save less than the method does.
  engine->Generate(Ask(Text(5, 300), "none"));
  EXPECT_TRUE(engine->Generate(Ask(Joined(Text(5, 12), Text(6, 500)), kSlim)).prune_active);
}

// An agent's turn: all but the new result is protected. Where the question is at the end, the cache serves
// the method as it serves a dense run; where the question stands before earlier results, it does not.
TEST_F(OnlyIfItPays, AnAgentsTurn) {
  for (const bool at_the_end : {true, false}) {
    const std::unique_ptr<Engine> engine = Load();
    engine->Generate(Ask(document_, "none"));
    Request turn = Ask(Joined(document_, Text(2, 300)), kCoppice);
    turn.protection = {.last = 8, .spans = {{0, 500}}, .apart = true};
    turn.question = {at_the_end ? PositionSpan{790, 800} : PositionSpan{20, 30}};
    const Answer answer = engine->Generate(turn);
    EXPECT_EQ(answer.prune_active, at_the_end) << answer.prune_reason;
    EXPECT_EQ(answer.cached_tokens(), 500);
  }
}

TEST_F(OnlyIfItPays, NothingIsComparedWithoutTheCache) {
  const std::unique_ptr<Engine> engine = Load();
  engine->Generate(Ask(document_, "none"));
  Request question = Ask(Joined(document_, Text(2, 20)), kSlim);
  question.use_documents = false;
  EXPECT_TRUE(engine->Generate(question).prune_active);
}

// Before the prefill, a caller hears what it will be.
TEST_F(OnlyIfItPays, TheChoiceIsTold) {
  const std::unique_ptr<Engine> engine = Load();
  engine->Generate(Ask(document_, "none"));
  for (const bool pays : {true, false}) {
    Request question = Ask(Joined(document_, Text(2, 20)), kSlim, pays);
    std::vector<std::string> told;
    question.on_choice = [&](const ChosenRun& chosen) {
      told.push_back(chosen.spec + "|" + chosen.reason);
      EXPECT_EQ(chosen.active, !pays);
    };
    question.progress = [&](double) { EXPECT_EQ(told.size(), 1); };
    const Answer answer = engine->Generate(question);
    EXPECT_THAT(told, testing::ElementsAre(answer.prune_spec + "|" + answer.prune_reason));
  }
}

// A plan counts what a run computes, whatever both take over.
TEST_F(OnlyIfItPays, PlansAreWhatRunsCompute) {
  const Ids prompt = Joined(document_, Text(2, 40));
  for (const char* earlier : {"none", kSlim, kCoppice}) {
    for (const char* method : {"none", kSlim, kCoppice, "fastkv:layer=2,min=0"}) {
      const std::unique_ptr<Engine> engine = Load();
      engine->Generate(Ask(document_, earlier));
      const ModelConfig& config = engine->model().config();
      const MethodContext context{.shape = config.shape, .tokens = std::ssize(prompt), .prompt = prompt};
      const PruneChoice choice = MakePolicy(method, context, {});
      const auto [point, rows] = engine->documents()->WouldTake(
          prompt, RulesOf(*choice.policy, config.shape.layer_count(), std::ssize(prompt)));
      const std::unique_ptr<Backend> planner = MakeBackend("reference", {});
      const Ledger plan = PlanPrefill(config, std::ssize(prompt), *choice.policy, {point, rows}, *planner);
      const Answer run = engine->Generate(Ask(prompt, method, false));
      EXPECT_EQ(rows, run.cached_tokens()) << earlier << ", then " << method;
      EXPECT_EQ(plan.cached_tokens, run.cached_tokens()) << earlier << ", then " << method;
      // Which blocks of units stay depends on scores, and a prompt's last block may be short.
      EXPECT_NEAR(plan.prefill_flops() / run.ledger.prefill_flops(), 1, 0.03)
          << earlier << ", then " << method;
    }
  }
}

}  // namespace
}  // namespace coppice
