// The document cache from the engine's interface: the second question, turns, cancelled requests, files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "engine/engine.h"
#include "tests_support.h"

namespace coppice::document_engine_test {
namespace {

using Ids = std::vector<int32_t>;

Ids Text(int32_t seed, int64_t tokens) {
  Ids ids;
  for (int64_t i = 0; i < tokens; ++i) ids.push_back(static_cast<int32_t>((seed * 89 + i * i * 7 + i) % 320));
  return ids;
}
Ids Joined(Ids first, const Ids& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

struct Told {
  Answer answer;
  std::vector<std::vector<float>> logits;
};

constexpr const char* kMethod = "sliminfer:layers=2/3,keep=128/64,block=16,last=1,min=0";

class DocumentEngine : public testing::Test {
 protected:
  void SetUp() override {
    if (!MakeBackendOrSkip("cpu", {})) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
  }
  EngineOptions Options(bool documents = true) const {
    EngineOptions options{.threads = 2, .tile_rows = 64};
    if (documents) options.documents = DocumentCacheOptions{.memory_bytes = 64 << 20, .folder = folder_};
    return options;
  }
  static std::unique_ptr<Engine> Load(const EngineOptions& options, const char* shape = "tiny:f32") {
    return Engine::FromShape(shape, options);
  }
  static Request Ask(Ids tokens, const std::string& prune = kMethod) {
    Request request;
    request.tokens = std::move(tokens);
    request.max_tokens = 6;
    request.sampling.temperature = 0;
    request.prune = prune;
    return request;
  }
  static Told Tell(Engine& engine, Request request) {
    Told told;
    request.on_logits = [&](std::span<const float> logits) {
      told.logits.emplace_back(logits.begin(), logits.end());
    };
    told.answer = engine.Generate(request);
    return told;
  }
  void ExpectFresh(const Told& told, const Request& request) {
    const Told fresh = Tell(*plain_, request);
    EXPECT_EQ(fresh.answer.cached_tokens(), 0);
    EXPECT_EQ(told.answer.tokens, fresh.answer.tokens);
    EXPECT_EQ(told.logits, fresh.logits);
    EXPECT_LE(told.answer.ledger.prefill_flops(), fresh.answer.ledger.prefill_flops());
  }

  TempFolder dir_;
  std::string folder_;  // of the cache; empty: memory alone
  std::unique_ptr<Engine> plain_ = Load(Options(false));
};

TEST_F(DocumentEngine, TheSecondQuestionCostsItsOwnTokens) {
  const std::unique_ptr<Engine> engine = Load(Options());
  const Ids document = Text(1, 500);
  const Request first = Ask(Joined(document, Text(2, 30)));
  const Told one = Tell(*engine, first);
  EXPECT_EQ(one.answer.cached_tokens(), 0);
  ExpectFresh(one, first);
  const Request second = Ask(Joined(document, Text(3, 40)));
  const Told two = Tell(*engine, second);
  EXPECT_EQ(two.answer.cached_tokens(), 500);
  ExpectFresh(two, second);
  EXPECT_LT(two.answer.ledger.prefill_flops(), 0.5 * one.answer.ledger.prefill_flops());
  EXPECT_EQ(engine->documents()->stats().entries, 1);  // forty tokens more are not worth an entry

  // Densely: what the pruned run left is of use to it, and what it leaves itself to the next dense one.
  const Request dense = Ask(second.tokens, "none");
  const Told three = Tell(*engine, dense);
  EXPECT_EQ(three.answer.cached_tokens(), 500);
  ExpectFresh(three, dense);
  const Told four = Tell(*engine, dense);
  EXPECT_EQ(four.answer.cached_tokens(), 539);
  ExpectFresh(four, dense);
}

TEST_F(DocumentEngine, TurnsOfAConversation) {
  const std::unique_ptr<Engine> engine = Load(Options());
  Ids prompt = Text(1, 400);
  for (int32_t turn = 0; turn < 4; ++turn) {
    const Request request = Ask(prompt);
    const Told told = Tell(*engine, request);
    EXPECT_EQ(told.answer.cached_tokens() > 0, turn > 0);
    ExpectFresh(told, request);
    prompt = Joined(Joined(std::move(prompt), told.answer.tokens), Text(turn + 5, 150));
  }
  EXPECT_EQ(engine->documents()->stats().entries, 1);
}

// An agent: what pruned runs protect comes from dense runs, and they leave it to later ones.
TEST_F(DocumentEngine, ProtectedTokensAreADenseRuns) {
  for (const std::string method : {kMethod, "lazyllm:layers=1/2,keep=0.4,min=0", "random:keep=0.5,min=0"}) {
    SCOPED_TRACE(method);
    const std::unique_ptr<Engine> engine = Load(Options());
    Ids prompt = Joined(Text(1, 400), Text(2, 200));
    const auto ask = [&](const std::string& prune) {
      const int64_t tokens = std::ssize(prompt);
      Request request = Ask(prompt, prune);
      request.protection = {.spans = {{0, tokens - 190}, {tokens - 12, tokens}}, .apart = true};
      return request;
    };
    engine->Generate(Ask(Text(1, 400), "none"));
    const Told first = Tell(*engine, ask(method));
    EXPECT_EQ(first.answer.cached_tokens(), 400);
    ExpectFresh(first, ask(method));
    EXPECT_TRUE(first.answer.prune_active) << first.answer.prune_reason;
    // The next turn protects what this one pruned: it is read densely, and the turn after that finds it.
    prompt = Joined(std::move(prompt), Text(3, 300));
    const Told second = Tell(*engine, ask(method));
    EXPECT_GE(second.answer.cached_tokens(), 400);
    ExpectFresh(second, ask(method));
    const std::vector<PositionSpan> stay = {{0, 710}, {888, 900}};
    EXPECT_EQ(second.answer.protected_spans, stay);
    prompt = Joined(std::move(prompt), Text(4, 300));
    const Told third = Tell(*engine, ask(method));
    EXPECT_EQ(third.answer.cached_tokens(), 710);
    ExpectFresh(third, ask(method));
    const Told dense =
        Tell(*engine, Ask(Joined({prompt.begin(), prompt.begin() + 700}, Text(9, 20)), "none"));
    EXPECT_EQ(dense.answer.cached_tokens(), 700);
    ExpectFresh(dense, Ask(Joined({prompt.begin(), prompt.begin() + 700}, Text(9, 20)), "none"));
  }
}

TEST_F(DocumentEngine, WhoDoesNotWantItOrCannotUseIt) {
  const std::unique_ptr<Engine> engine = Load(Options());
  Request request = Ask(Text(1, 500));
  request.use_documents = false;
  EXPECT_EQ(Tell(*engine, request).answer.cached_tokens(), 0);
  EXPECT_EQ(engine->documents()->stats().entries, 0);
  // Log-probabilities of the prompt need every row.
  Request scored = Ask(Text(1, 500), "none");
  scored.prompt_log_probs = true;
  int64_t told = 0;
  scored.on_log_probs = [&](const TokenLogProbs&) { ++told; };
  engine->Generate(Ask(Text(1, 500), "none"));
  EXPECT_EQ(engine->Generate(scored).cached_tokens(), 0);
  EXPECT_EQ(told, 499 + 6);
  // Methods that look at the whole prompt from the start.
  for (const char* spec : {"random:keep=0.5,min=0", "h2o:min=0", "xattention:threshold=0.5,min=0"}) {
    const Request pruned = Ask(Text(1, 500), spec);
    const Told run = Tell(*engine, pruned);
    EXPECT_EQ(run.answer.cached_tokens(), 0) << spec;
    ExpectFresh(run, pruned);
  }
  EXPECT_EQ(engine->documents()->stats().entries, 1);
  EXPECT_EQ(plain_->documents(), nullptr);
}

TEST_F(DocumentEngine, ACancelledPrefillStays) {
  const std::unique_ptr<Engine> engine = Load(Options());
  Request request = Ask(Text(1, 600), "none");
  std::atomic<bool> cancelled = false;
  request.cancelled = &cancelled;
  request.progress = [&](double done) { cancelled = done > 2.4; };
  EXPECT_THROW(engine->Generate(request), Cancelled);
  EXPECT_EQ(engine->documents()->stats().entries, 1);
  request = Ask(Text(1, 600), "none");
  const Told retry = Tell(*engine, request);
  EXPECT_EQ(retry.answer.cached_tokens(), 599);
  ExpectFresh(retry, request);
  const double fresh = Tell(*plain_, request).answer.ledger.prefill_flops();
  EXPECT_LT(retry.answer.ledger.prefill_flops(), 0.6 * fresh);  // two layers of four were there
  EXPECT_EQ(engine->documents()->stats().entries, 1);           // the whole one took its place
}

TEST_F(DocumentEngine, AnotherProcessFindsItOnDisk) {
  folder_ = dir_.Path("cache");
  const Ids document = Text(1, 500);
  Load(Options())->Generate(Ask(document));
  const Request second = Ask(Joined(document, Text(3, 40)));
  const std::unique_ptr<Engine> engine = Load(Options());
  const Told told = Tell(*engine, second);
  EXPECT_EQ(told.answer.cached_tokens(), 500);
  ExpectFresh(told, second);
  // Whatever changes a bit makes it another engine; threads and tiles do not.
  EngineOptions other = Options();
  other.threads = 1;
  other.tile_rows = 33;
  EXPECT_EQ(Tell(*Load(other), second).answer.cached_tokens(), 500);
  other.cache_type = DType::kF32;
  EXPECT_EQ(Tell(*Load(other), second).answer.cached_tokens(), 0);
  other = Options();
  other.exact = true;
  EXPECT_EQ(Tell(*Load(other), second).answer.cached_tokens(), 0);
  other = Options();
  other.fast = true;
  EXPECT_EQ(Tell(*Load(other), second).answer.cached_tokens(), 0);
  other = Options();
  other.backend = "reference";
  EXPECT_EQ(Tell(*Load(other), second).answer.cached_tokens(), 0);
  EXPECT_EQ(Tell(*Load(Options(), "tiny:f16"), second).answer.cached_tokens(), 0);
}

TEST_F(DocumentEngine, ADamagedFileCostsTimeAlone) {
  folder_ = dir_.Path("cache");
  const Ids document = Text(1, 500);
  Load(Options())->Generate(Ask(document));
  for (const auto& file : std::filesystem::directory_iterator(folder_)) {
    std::fstream bytes(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(-1000, std::ios::end);
    const int old = bytes.get();
    bytes.seekp(-1000, std::ios::end);
    bytes.put(static_cast<char>(old ^ 1));
  }
  const std::unique_ptr<Engine> engine = Load(Options());
  const Request request = Ask(Joined(document, Text(3, 40)));
  const Told told = Tell(*engine, request);
  EXPECT_EQ(told.answer.cached_tokens(), 0);
  ExpectFresh(told, request);
  EXPECT_THAT(engine->documents()->stats().last_error, testing::HasSubstr("damaged"));
}

}  // namespace
}  // namespace coppice::document_engine_test
