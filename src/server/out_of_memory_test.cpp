// Memory, and threads, that run out where it hurts: nothing of it may end the process, keep a client waiting
// or make the server deaf.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <new>
#include <thread>

#include "base/error.h"
#include "engine/engine.h"
#include "failing_memory.h"
#include "server/http/http.h"
#include "server/http/http_test_client.h"
#include "server/scheduler.h"

namespace coppice {
namespace {

using std::chrono::milliseconds;

// /short: there is no memory for the first piece of the answer.
class Service final : public HttpService {
 public:
  std::optional<HttpReply> Refuse(const HttpRequest&) override { return std::nullopt; }
  bool IsQuick(const HttpRequest&) override { return true; }
  void Handle(HttpRequest request, std::shared_ptr<Exchange> exchange) override {
    if (request.path == "/short") failing_allocations = 1;
    exchange->Reply({.status = 200, .body = "whole"});
    failing_allocations = 0;
  }
};

HttpOptions AnyPort() {
  HttpOptions options;
  options.port = 0;
  return options;
}

TEST(OutOfMemory, HalfAnAnswerClosesItsConnection) {
  Service service;
  HttpServer server(AnyPort(), service);
  Client client(server.port());
  client.Get("/short");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(client.Until("whole").find("whole"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  Client other(server.port());
  other.Get("/");
  EXPECT_NE(other.Until("whole").find("whole"), std::string::npos);
}

TEST(OutOfMemory, TheServerStaysOpenToNewClients) {
  Service service;
  HttpServer server(AnyPort(), service);
  {
    const NoMemoryForOthers none;
    Client client(server.port());
    client.Get("/");
    std::this_thread::sleep_for(milliseconds(150));  // it knocks in vain
  }
  Client client(server.port());
  client.Get("/");
  EXPECT_NE(client.Until("whole").find("whole"), std::string::npos);
}

// What a job says cannot be said; what it is told cannot be made.
class MemoryListener final : public JobEvents {
 public:
  void OnPrefix(int64_t) override {}
  void OnProgress(int64_t, int64_t, double) override {}
  void OnLogProbs(const TokenLogProbs&) override {}
  void OnText(int32_t, const std::string&) override {}
  void OnDone(const JobResult&) override {
    failing_allocations = 1000;
    throw std::bad_alloc();
  }
  void OnError(const HttpFault& fault) override { told_ = fault.message; }
  std::string told_;
};

TEST(OutOfMemory, AJobThrowsNothing) {
  const std::unique_ptr<Engine> engine =
      Engine::Load(COPPICE_SOURCE_DIR "/models/coppice-mini-f16.gguf", {.backend = "cpu", .threads = 1});
  Job job;
  job.request.tokens = {1, 2, 3};
  job.request.max_tokens = 0;
  job.events = std::make_shared<MemoryListener>();
  JobResult result;
  bool done = true;
  EXPECT_NO_THROW(done = RunJob(*engine, job, {}, result));
  failing_allocations = 0;
  EXPECT_FALSE(done);
  EXPECT_FALSE(result.cancelled);
}

// In a process of its own: the limit cannot be taken back.
template <typename Make>
[[noreturn]] void WithFewThreads(Make make) {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const auto most = static_cast<rlim_t>(pages * getpagesize() + (200 << 20));  // stacks take 8 MiB each
  const rlimit limit = {most, most};
  setrlimit(RLIMIT_AS, &limit);
  try {
    make();
  } catch (const Error& error) {
    std::fputs(error.what(), stderr);
    std::_Exit(3);
  }
  std::_Exit(0);
}

TEST(OutOfThreads, IsAnErrorOfTheOptionThatAskedForThem) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need the address space";
#endif
  const auto scheduler = [] {
    Metrics metrics;
    const auto run = [](Job&, const JobTurns&, JobResult&) { return true; };
    const TurnScheduler made(run, {}, metrics, {.slots = 256});
  };
  EXPECT_EXIT(WithFewThreads(scheduler), testing::ExitedWithCode(3), "parallel 256: .* no more threads");
  const auto server = [] {
    Service service;
    HttpOptions options = AnyPort();
    options.threads = 64;
    const HttpServer made(options, service);
  };
  EXPECT_EXIT(WithFewThreads(server), testing::ExitedWithCode(3), "threads_http 64: .* no more threads");
}

}  // namespace
}  // namespace coppice
