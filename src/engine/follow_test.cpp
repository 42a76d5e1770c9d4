// Engines of several processes, from process 0's interface. The processes are threads here; tests/mpi has the
// same program under mpirun.
#include "engine/follow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>

#include "base/error.h"
#include "tests_support.h"
#include "thread_comm.h"

namespace coppice::follow_test {
namespace {

using testing::HasSubstr;

const std::string kMini = COPPICE_SOURCE_DIR "/models/coppice-mini-f16.gguf";

// Runs `lead` as process 0's program; the others follow.
void Together(int processes, const std::function<void(Comm&)>& lead) {
  ThreadGroup(processes).Run([&](Comm& comm) {
    if (!comm.leads()) return Follow(comm);
    lead(comm);
    SendEnd(comm);
  });
}

EngineOptions Options(Comm* comm = nullptr) {
  return {.backend = "reference", .threads = 1, .tile_rows = 64, .comm = comm};
}

Request Ask(int64_t tokens, const std::string& prune) {
  Request request;
  for (int32_t i = 0; i < tokens; ++i) request.tokens.push_back(i * 37 % 250 + 3);
  request.max_tokens = 3;
  request.ignore_eos = true;
  request.sampling.temperature = 0;
  request.prune = prune;
  return request;
}

struct Told {
  Answer answer;
  std::vector<float> logits;
};

Told Generate(Engine& engine, Request request) {
  Told told;
  request.on_logits = [&](std::span<const float> row) {
    told.logits.insert(told.logits.end(), row.begin(), row.end());
  };
  told.answer = engine.Generate(request);
  return told;
}

TEST(Follow, EveryFieldThatChoosesTokensIsSent) {
  std::vector<Request> requests = {Ask(180, "none"), Ask(180, "lazyllm:layers=1,keep=0.3,min=0")};
  requests.push_back(Ask(180, "drop:layer=1,min=0"));
  requests.back().evidence = {{40, 90}};
  requests.push_back(Ask(180, "lazyllm:layers=1,keep=0.2,ask=question,min=0"));
  requests.back().question = {{20, 30}, {50, 55}};
  requests.push_back(Ask(180, "random:layers=1,keep=0.2,min=0"));
  requests.back().protection = {.first = 7, .last = 30, .spans = {{60, 70}}};
  requests.push_back(Ask(180, "lazyllm:layers=1,keep=0.3,min=0"));
  requests.back().protection = {.first = 90, .last = 0, .spans = {}, .apart = true};
  requests.push_back(Ask(180, "lazyllm:layers=1,keep=0.3,min=0"));
  requests.back().confidence = true;
  const auto alone = Engine::FromShape("tiny:f32", Options());
  Together(3, [&](Comm& comm) {
    const auto engine = Engine::FromShape("tiny:f32", Options(&comm));
    for (const Request& request : requests) {
      SCOPED_TRACE(request.prune);
      const Told one = Generate(*alone, request);
      const Told all = Generate(*engine, request);
      EXPECT_EQ(all.answer.prune_active, request.prune != "none");
      EXPECT_EQ(all.answer.tokens, one.answer.tokens);
      EXPECT_EQ(all.logits, one.logits);
      EXPECT_EQ(all.answer.ledger.flops(), one.answer.ledger.flops());
      EXPECT_EQ(all.answer.ledger.processes.size(), 3u);
      EXPECT_EQ(all.answer.confidence.has_value(), request.confidence);
    }
  });
}

TEST(Follow, PackedWeightsAreKeptInEveryProcess) {
  const Told one = Generate(*Engine::FromShape("tiny:f32", Options()), Ask(180, "none"));
  Together(2, [&](Comm& comm) {
    EngineOptions options = Options(&comm);
    options.packed_bytes = 1 << 20;
    const auto engine = Engine::FromShape("tiny:f32", options);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(Generate(*engine, Ask(180, "none")).logits, one.logits);
    EXPECT_GT(engine->packed_bytes(), 0);
  });
}

// The pass that scores the prompt is process 0's own, or, for gemfilter, every process's. If process 0 left
// it, the others would wait.
TEST(Follow, ARequestIsCancelledWhileASecondModelReads) {
  const auto alone = Engine::Load(kMini, Options());
  const std::string reader = COPPICE_SOURCE_DIR "/tests/data/llmlingua2/bert";
  for (const std::string& prune :
       {"llmlingua2:model=" + reader + ",keep=0.5,min=0", "specprefill:draft=" + kMini + ",keep=0.5,min=0",
        "selective:model=" + kMini + ",keep=0.5,min=0", std::string("gemfilter:keep=20,min=0")}) {
    SCOPED_TRACE(prune);
    const Told one = Generate(*alone, Ask(70, prune));
    ASSERT_TRUE(one.answer.prune_active) << one.answer.prune_reason;
    Together(2, [&](Comm& comm) {
      const auto engine = Engine::Load(kMini, Options(&comm));
      std::atomic<bool> cancelled = false;
      Request request = Ask(70, prune);
      request.cancelled = &cancelled;
      request.on_prefix = [&](int64_t) { cancelled = true; };  // before anything is read
      EXPECT_THROW(engine->Generate(request), Cancelled);
      EXPECT_TRUE(cancelled);
      const Told all = Generate(*engine, Ask(70, prune));
      EXPECT_EQ(all.answer.tokens, one.answer.tokens);
      EXPECT_EQ(all.logits, one.logits);
    });
  }
}

TEST(Follow, ARefusedRequestOrModelLeavesTheProcessesUsable) {
  Together(2, [](Comm& comm) {
    EXPECT_THAT(ErrorOf([&] { Engine::Load("/absent.gguf", Options(&comm)); }), HasSubstr("/absent.gguf"));
    const auto engine = Engine::FromShape("tiny:f32", Options(&comm));
    EXPECT_THAT(ErrorOf([&] { engine->Generate(Ask(50, "h2o:min=0")); }),
                HasSubstr("does not go with 2 processes: layer 0 sums the scores of all queries"));
    EXPECT_THAT(ErrorOf([&] { engine->Generate(Ask(50, "ftp:fill=mean,first=4,last=8,dense=0,min=0")); }),
                HasSubstr("does not go with 2 processes: ftp:fill=mean"));
    EXPECT_EQ(engine->Generate(Ask(50, "none")).tokens.size(), 3u);
  });
}

TEST(Follow, TwoEnginesTakeTurns) {
  Together(2, [](Comm& comm) {
    auto first = Engine::FromShape("tiny:f32", Options(&comm));
    auto second = Engine::FromShape("tiny:f32", Options(&comm));
    const std::vector<int32_t> tokens = first->Generate(Ask(60, "none")).tokens;
    EXPECT_EQ(second->Generate(Ask(60, "none")).tokens, tokens);
    first.reset();
    EXPECT_EQ(second->Generate(Ask(60, "none")).tokens, tokens);
  });
}

// What the processes say of AgreeOnLoad's `error` and `print`: [processes].
std::vector<std::string> LoadErrors(const std::vector<std::string>& errors,
                                    const std::vector<Fingerprint>& prints) {
  std::vector<std::string> thrown(errors.size());
  ThreadGroup(static_cast<int>(errors.size())).Run([&](Comm& comm) {
    const auto p = static_cast<size_t>(comm.rank());
    try {
      AgreeOnLoad(comm, errors[p], prints[p]);
    } catch (const Error& error) {
      thrown[p] = error.what();
    }
  });
  return thrown;
}

TEST(Follow, EveryProcessLearnsWhyLoadingFailed) {
  const Fingerprint a{1, 2};
  const Fingerprint b{1, 3};
  EXPECT_THAT(LoadErrors({"", "", ""}, {a, a, a}), testing::Each(""));
  EXPECT_THAT(LoadErrors({"", "no file", ""}, {a, {}, a}), testing::Each("process 1 of 3: no file"));
  EXPECT_THAT(LoadErrors({"no file", "no file", "no file"}, {{}, {}, {}}), testing::Each("no file"));
  EXPECT_THAT(LoadErrors({"", "", ""}, {a, a, b}),
              testing::Each(HasSubstr("process 2 of 3 has other weights, another build or another CPU")));
  const std::string longer(3000, 'x');
  EXPECT_THAT(LoadErrors({"", longer}, {a, {}}), testing::Each(testing::StartsWith("process 1 of 2: xxx")));
}

TEST(Follow, TheMeterHasEveryProcess) {
  ThreadGroup(3).Run([](Comm& comm) {
    const WorkMeter meter(comm);
    const std::vector<ProcessWork> works = meter.OfAll({.kv = comm.rank() + 5, .query = 1, .ffn = 2});
    ASSERT_EQ(works.size(), 3u);
    for (int p = 0; p < 3; ++p) EXPECT_EQ(works[static_cast<size_t>(p)].rows.kv, p + 5);
  });
}

}  // namespace
}  // namespace coppice::follow_test
