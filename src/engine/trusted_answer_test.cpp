// Request::least_confidence: what is not trusted is answered as a dense run answers, to the bit, and nothing
// else shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "engine/answer_judge.h"
#include "engine/engine.h"
#include "tests_support.h"

namespace coppice {
namespace {

class TrustedAnswer : public testing::Test {
 protected:
  TrustedAnswer() {
    for (int32_t i = 0; i < 200; ++i) request_.tokens.push_back(i * 37 % 300 + 3);
    request_.max_tokens = 12;
    request_.sampling.temperature = 0;
    request_.ignore_eos = true;
    request_.prune = "lazyllm:layers=1,keep=0.1,min=0,strict_memory=0";
    request_.on_token = [this](int32_t id) {
      shown_.push_back(id);
      return true;
    };
  }
  Answer Ask(double least) {
    shown_.clear();
    request_.least_confidence = least;
    return engine_->Generate(request_);
  }
  Answer Dense() {
    Request dense = request_;
    dense.prune = "none";
    dense.least_confidence = 0;
    dense.on_token = nullptr;
    return engine_->Generate(dense);
  }

  std::unique_ptr<Engine> engine_ = Engine::FromShape("tiny:f32", {.backend = "reference"});
  Request request_;
  std::vector<int32_t> shown_;
};

TEST_F(TrustedAnswer, ADistrustedAnswerIsTheDenseOne) {
  const Answer dense = Dense();
  const Answer answer = Ask(1);  // random weights are never that sure
  EXPECT_TRUE(answer.fell_back);
  EXPECT_FALSE(answer.prune_active);
  EXPECT_EQ(answer.tokens, dense.tokens);
  EXPECT_EQ(shown_, dense.tokens) << "nothing of the pruned answer shows";
  EXPECT_THAT(answer.prune_reason, testing::HasSubstr("below 1 (lazyllm:"));
  // The layers below the first choice ran once, in the pruned run, whose work is counted.
  EXPECT_GT(answer.ledger.selection_flops, 0);
  EXPECT_LT(answer.ledger.prefill_flops() - answer.ledger.selection_flops, dense.ledger.prefill_flops());
  EXPECT_EQ(answer.cached_tokens(), 0) << "nothing comes from an earlier request";
}

TEST_F(TrustedAnswer, ATrustedAnswerIsThePrunedOne) {
  const Answer pruned = Ask(0);
  const Answer answer = Ask(1e-9);
  EXPECT_FALSE(answer.fell_back);
  EXPECT_TRUE(answer.prune_active);
  EXPECT_EQ(answer.tokens, pruned.tokens);
  EXPECT_EQ(shown_, pruned.tokens);
  // Shorter than what is held back.
  request_.max_tokens = 3;
  EXPECT_EQ(Ask(1e-9).tokens.size(), 3u);
  EXPECT_EQ(shown_.size(), 3u);
}

TEST_F(TrustedAnswer, ADenseAnswerIsTrusted) {
  request_.prune = "lazyllm";  // 200 tokens: it stands aside
  const Answer answer = Ask(1);
  EXPECT_FALSE(answer.fell_back);
  EXPECT_EQ(answer.tokens, Dense().tokens);
  EXPECT_EQ(shown_, answer.tokens);
}

// When the first token is shown, this many have been generated; and how often the caller heard of a wait.
struct Waited {
  int64_t generated = 0;
  int held = 0;
};

TEST_F(TrustedAnswer, HoldsBackNoLongerThanItMust) {
  const auto wait = [this](double least) {
    Waited waited;
    int64_t generated = 0;
    request_.on_logits = nullptr;
    request_.on_held = [&] {
      ++waited.held;
      EXPECT_TRUE(shown_.empty());
    };
    request_.decode = [&](DecodeStep& step) {  // told at once, unlike on_logits, which is held back, too
      ++generated;
      DecodeStep* const one = &step;
      engine_->DecodeTogether({&one, 1});
    };
    request_.on_token = [&](int32_t id) {
      if (shown_.empty()) waited.generated = generated + 1;
      shown_.push_back(id);
      return true;
    };
    Ask(least);
    return waited;
  };
  request_.prune = "static:layer=1,keep=0.5,min=0";  // steps are plain
  request_.max_tokens = AnswerJudge::kMostTokens + 10;
  const Waited believed = wait(1e-9);  // without a tokenizer there is no sentence's end
  EXPECT_EQ(believed.generated, AnswerJudge::kMostTokens + 1);
  EXPECT_EQ(believed.held, 1);
  const Waited plain = wait(0);
  EXPECT_EQ(plain.generated, 1);
  EXPECT_EQ(plain.held, 0);
  request_.prune = "static";  // 200 tokens: it stands aside, so the answer is dense
  const Waited dense = wait(1);
  EXPECT_EQ(dense.generated, 1);
  EXPECT_EQ(dense.held, 0);
}

TEST_F(TrustedAnswer, FallsBackAtTheFirstDoubt) {
  request_.prune = "static:layer=1,keep=0.5,min=0";
  request_.max_tokens = 40;
  int64_t generated = 0;
  int64_t begun = 0;
  request_.decode = [&](DecodeStep& step) {
    ++generated;
    DecodeStep* const one = &step;
    engine_->DecodeTogether({&one, 1});
  };
  request_.on_prefix = [&](int64_t) {
    if (++begun == 2) {
      EXPECT_EQ(generated + 1, AnswerJudge::kInARow) << "when the dense run begins";
    }
  };
  const Answer answer = Ask(1);
  EXPECT_TRUE(answer.fell_back);
  EXPECT_EQ(begun, 2);
}

TEST_F(TrustedAnswer, ConfidenceIsThatOfTheLikeliestTokens) {
  request_.confidence = true;
  double sum = 0;
  request_.on_logits = [&](std::span<const float> logits) { sum += LogSoftmax(logits).Highest(); };
  const Answer answer = Ask(0);
  ASSERT_TRUE(answer.confidence.has_value());
  EXPECT_EQ(answer.confidence->tokens, 12);
  EXPECT_NEAR(answer.confidence->mean_log_probability, sum / 12, 1e-9);
  EXPECT_GT(answer.confidence->dropped_mass, 0.1) << "nine of ten tokens left";
  // Two of 200 tokens leave. The last layer, which computes one row, drops nothing.
  request_.prune = "static:layer=1,keep=0.99,min=0";
  EXPECT_LT(Ask(0).confidence->dropped_mass, 0.05);
}

TEST_F(TrustedAnswer, RefusesWhatIsNoProbability) {
  EXPECT_THROW(Ask(1.5), Error);
  EXPECT_THROW(Ask(-0.1), Error);
  EXPECT_THROW(Ask(std::nan("")), Error);
}

TEST_F(TrustedAnswer, WhoStopsIsStopped) {
  for (const int64_t most :
       {int64_t{12}, AnswerJudge::kMostTokens + 10}) {  // held to the end, and not so long
    int32_t seen = 0;
    request_.max_tokens = most;
    request_.on_token = [&](int32_t) { return ++seen < 2; };
    const Answer answer = Ask(1e-9);
    EXPECT_EQ(answer.finish_reason, "cancelled");
    EXPECT_EQ(answer.tokens.size(), 2u);
    EXPECT_EQ(seen, 2);
  }
}

}  // namespace
}  // namespace coppice
