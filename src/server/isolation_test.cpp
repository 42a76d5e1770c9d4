// Many unlike requests at once, some of which are cancelled: each gets the answer that it gets alone, token
// by token and logarithm by logarithm.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>

#include "base/error.h"
#include "server/scheduler.h"
#include "tests_support.h"
#include "tiny_model.h"

namespace coppice {
namespace {

struct Told {
  Answer answer;
  std::vector<TokenLogProbs> log_probs;
  std::string error;
};

class Listener final : public JobEvents {
 public:
  void OnPrefix(int64_t) override {}
  void OnProgress(int64_t, int64_t, double) override {}
  void OnLogProbs(const TokenLogProbs& token) override { told_.log_probs.push_back(token); }
  void OnText(int32_t, const std::string&) override {}
  void OnDone(const JobResult& result) override {
    told_.answer = result.answer;
    end_.set_value(told_);
  }
  void OnError(const HttpFault& fault) override {
    told_.error = fault.message;
    end_.set_value(told_);
  }
  Told Wait() { return future_.get(); }

 private:
  Told told_;
  std::promise<Told> end_;
  std::future<Told> future_ = end_.get_future();
};

// As RunJob, of a model without a tokenizer.
bool Compute(Engine& engine, Job& job, const JobTurns& turns, JobResult& result) {
  try {
    Request request = job.request;
    request.cancelled = &job.cancelled;
    request.pause = turns.pause;
    request.decode = turns.decode;
    request.progress = [&](double layers) {
      job.processed = static_cast<int64_t>(layers / engine.model().config().shape.layer_count() *
                                           static_cast<double>(job.request.tokens.size()));
    };
    request.on_token = [&](int32_t) {
      ++job.decoded;
      return true;
    };
    request.on_log_probs = [&](const TokenLogProbs& token) { job.events->OnLogProbs(token); };
    result.answer = engine.Generate(request);
    job.events->OnDone(result);
    return true;
  } catch (const std::exception& error) {
    job.events->OnError({500, "", error.what()});
    return false;
  }
}

// Every method that changes what is computed, each with a prompt, a seed and a length of its own.
std::vector<Request> MixedRequests(int count) {
  const char* specs[] = {"none",
                         "lazyllm:layers=1/2/3,keep=0.7/0.5/0.3,min=0",
                         "sliminfer:layers=1/2,keep=128/64,min=0",
                         "ftp:dense=1,min=0",
                         "none",
                         "sliminfer:layers=1/2,keep=128/64,revive=none,min=0+ftp:dense=1,min=0",
                         "random:keep=0.5,min=0",
                         "h2o:min=0",
                         "snapkv:cap=64,min=0",
                         "xattention:min=0",
                         "flashprefill:block=32,min=0",
                         "pyramidinfer:min=0",
                         "fastkv:layer=1,min=0",
                         "gemfilter:layer=1,keep=0.5,min=0",
                         "uniprefill:layers=1/2,p=0.5,block=16,sink=16,last=16,min=0",
                         "spts:begin=1,layers=1/2,keep=80/60,drop=40,min=0",
                         "quest:min=0"};
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request request;
    request.prune = specs[static_cast<size_t>(i) % std::size(specs)];
    request.tokens = RandomPrompt(150 + 61 * (i % 7), 320, static_cast<uint64_t>(i));
    request.max_tokens = 12 + i % 19;
    request.ignore_eos = true;
    request.sampling.temperature = i % 3 == 0 ? 0 : 1.2;
    request.sampling.seed = static_cast<uint64_t>(100 + i);
    request.top_log_probs = 3;
    request.prompt_log_probs = request.prune == "none" && i % 4 == 0;
    requests.push_back(std::move(request));
  }
  return requests;
}

void ExpectSame(const Told& alone, const Told& together) {
  EXPECT_EQ(together.error, alone.error);
  EXPECT_EQ(together.answer.tokens, alone.answer.tokens);
  EXPECT_EQ(together.answer.finish_reason, alone.answer.finish_reason);
  EXPECT_EQ(together.answer.prune_active, alone.answer.prune_active);
  ASSERT_EQ(together.answer.ledger.layers().size(), alone.answer.ledger.layers().size());
  for (size_t l = 0; l < alone.answer.ledger.layers().size(); ++l) {
    EXPECT_EQ(together.answer.ledger.layers()[l].kv_rows, alone.answer.ledger.layers()[l].kv_rows);
    EXPECT_EQ(together.answer.ledger.layers()[l].ffn_rows, alone.answer.ledger.layers()[l].ffn_rows);
  }
  ASSERT_EQ(together.log_probs.size(), alone.log_probs.size());
  const auto same = [](const auto& a, const auto& b) { return a.id == b.id && a.value == b.value; };
  for (size_t i = 0; i < alone.log_probs.size(); ++i) {
    EXPECT_TRUE(same(together.log_probs[i].token, alone.log_probs[i].token)) << i;
    EXPECT_TRUE(std::ranges::equal(together.log_probs[i].top, alone.log_probs[i].top, same)) << i;
  }
}

std::shared_ptr<Job> MakeJob(const Request& request, const std::shared_ptr<Listener>& listener) {
  auto job = std::make_shared<Job>();
  job->request = request;
  job->arrived = std::chrono::steady_clock::now();
  job->events = listener;
  return job;
}

class IsolationTest : public testing::TestWithParam<const char*> {};

// The requests share packed weights, and there is room for some of them: requests find what others kept, and
// keep more while others are in the middle of a layer.
TEST_P(IsolationTest, AnswersAreThoseOfRequestsAlone) {
  const EngineOptions options{.backend = "cpu", .threads = 2, .tile_rows = 32};
  const std::unique_ptr<Engine> apart = Engine::FromShape(GetParam(), options);
  EngineOptions sharing = options;
  sharing.packed_bytes = 150'000;
  const std::unique_ptr<Engine> engine = Engine::FromShape(GetParam(), sharing);
  const std::vector<Request> requests = MixedRequests(24);
  std::vector<Told> alone;
  for (const Request& request : requests) {
    auto listener = std::make_shared<Listener>();
    const std::shared_ptr<Job> job = MakeJob(request, listener);
    JobResult result;
    Compute(*apart, *job, {}, result);
    alone.push_back(listener->Wait());
    ASSERT_EQ(alone.back().error, "") << request.prune;
  }

  Metrics metrics;
  int pauses = 0;
  int handed_over = 0;
  const Job* computing = nullptr;
  const auto run = [&](Job& job, const JobTurns& turns, JobResult& result) {
    computing = &job;
    const auto counted = [&] {
      turns.pause();
      ++pauses;
      handed_over += computing != &job;
      computing = &job;
    };
    return Compute(*engine, job, {counted, turns.decode, {}}, result);
  };
  const auto decode = [&](std::span<DecodeStep* const> steps) { engine->DecodeTogether(steps); };
  TurnScheduler scheduler(run, decode, metrics, {.slots = 6, .max_waiting = 1000, .shortest_turn = {}});
  std::vector<std::shared_ptr<Listener>> listeners;
  std::vector<std::shared_ptr<Job>> leaving;
  for (size_t i = 0; i < requests.size(); ++i) {
    listeners.push_back(std::make_shared<Listener>());
    scheduler.Submit({MakeJob(requests[i], listeners.back())});
    if (i % 3 == 0) {  // the same again, but its client leaves at some moment
      leaving.push_back(MakeJob(requests[i], std::make_shared<Listener>()));
      scheduler.Submit({leaving.back()});
    }
  }
  for (const std::shared_ptr<Job>& job : leaving) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    scheduler.Cancel({job});
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(requests[i].prune + ", request " + std::to_string(i));
    ExpectSame(alone[i], listeners[i]->Wait());
  }
  scheduler.Stop();
  EXPECT_GT(handed_over, 50);  // they did run at once
  EXPECT_GT(engine->packed_bytes(), sharing.packed_bytes / 2);
  EXPECT_LE(engine->packed_bytes(), sharing.packed_bytes);
  EXPECT_LT(handed_over, pauses);
}

TEST_P(IsolationTest, SequencesDecodeTogether) {
  const std::unique_ptr<Engine> engine =
      Engine::FromShape(GetParam(), {.backend = "cpu", .threads = 2, .tile_rows = 32});
  constexpr size_t kJobs = 5;
  std::vector<Request> requests = MixedRequests(kJobs);
  for (Request& request : requests) {
    request.prune = "none";
    request.max_tokens = 300;  // far longer than the others' prefills take
  }
  std::vector<Told> alone;
  for (const Request& request : requests) {
    auto listener = std::make_shared<Listener>();
    JobResult result;
    Compute(*engine, *MakeJob(request, listener), {}, result);
    alone.push_back(listener->Wait());
  }
  size_t most = 0;
  bool fails = false;
  const auto decode = [&](std::span<DecodeStep* const> steps) {
    most = std::max(most, steps.size());
    // While a job is missing, the 300 tokens of the others take 3 s: a busy machine starts it by then.
    if (most < kJobs) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (fails && steps.size() == kJobs) throw std::bad_alloc();
    engine->DecodeTogether(steps);
  };
  Metrics metrics;
  const auto run = [&](Job& job, const JobTurns& turns, JobResult& result) {
    return Compute(*engine, job, turns, result);
  };
  TurnScheduler scheduler(run, decode, metrics, {.slots = kJobs, .max_waiting = 100});
  for (fails = false;; fails = true) {
    most = 0;
    std::vector<std::shared_ptr<Listener>> listeners;
    for (const Request& request : requests) {
      listeners.push_back(std::make_shared<Listener>());
      scheduler.Submit({MakeJob(request, listeners.back())});
    }
    for (size_t i = 0; i < kJobs; ++i) {
      const Told told = listeners[i]->Wait();
      if (!fails) {
        ExpectSame(alone[i], told);
      } else {
        EXPECT_NE(told.error, "") << "what ends a step ends all that were in it";
      }
    }
    EXPECT_EQ(most, kJobs);
    if (fails) break;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, IsolationTest, testing::Values("tiny:f32", "tiny:bf16", "tiny:q8_0"),
                         [](const auto& type) { return std::string(type.param).substr(5); });

}  // namespace
}  // namespace coppice
