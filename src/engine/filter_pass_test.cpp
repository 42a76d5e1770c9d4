// The first pass of GemFilter, and whole answers.
#include "engine/filter_pass.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/dry_run.h"
#include "engine/engine.h"
#include "engine/open_model.h"
#include "policies/methods/gemfilter.h"
#include "policies/stages.h"
#include "tests_support.h"

namespace coppice::filter_pass_test {
namespace {

const std::string kMini = COPPICE_SOURCE_DIR "/models/coppice-mini-f16.gguf";

class FilterTest : public testing::Test {
 protected:
  void SetUp() override {
    backend_ = MakeNativeBackendOrSkip("cpu", {.threads = 2, .exact = true});
    if (!backend_) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
    opened_ = OpenModel(kMini);
    std::string text;
    for (int i = 0; i < 30; ++i) text += "The key of door " + std::to_string(i * 7919 % 10007) + " is blue. ";
    tokens_ = opened_.tokenizer->Encode(text + "What is the key of door 7919?");
  }
  FilterReading Read(const Transformer& model, int layer, int64_t tile_rows, const RunControl& control = {}) {
    Workspace workspace = model.NewWorkspace(tile_rows);
    return RunFilter(model, tokens_, layer, workspace, control, *backend_);
  }

  std::unique_ptr<Backend> backend_;
  OpenedModel opened_;
  std::vector<int32_t> tokens_;
};

// The scores are those that a whole dense run shows at the same layer, bit for bit, whatever the tiles; the
// FLOPs are the closed form.
TEST_F(FilterTest, ReadsAsTheWholeModelWould) {
  const Transformer model = MakeTransformer(opened_.store, opened_.config);
  const auto count = std::ssize(tokens_);
  const ModelShape& shape = model.config().shape;
  for (const int layer : {0, 4, shape.layer_count() - 1}) {
    SCOPED_TRACE(layer);
    const FilterReading reading = Read(model, layer, 64);
    FilterWatch watch(layer);
    Workspace workspace = model.NewWorkspace(512);
    SequenceState sequence = model.NewSequence(count, count, *backend_);
    Tensor logits;
    model.Prefill(tokens_, {watch, sequence, workspace, *backend_}, logits);
    ASSERT_EQ(std::ssize(reading.scores), count);
    EXPECT_EQ(reading.scores, watch.scores());
    EXPECT_NEAR(reading.flops / FilterFlops(shape, count, layer), 1, 1e-12);
    EXPECT_LT(reading.flops, sequence.ledger.prefill_flops());
  }
}

TEST_F(FilterTest, CanBeCancelledAndReportsProgress) {
  const Transformer model = MakeTransformer(opened_.store, opened_.config);
  std::vector<double> shares;
  Read(model, 4, 64, {[&](double share) { shares.push_back(share); }});
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  ASSERT_GT(shares.size(), 10u);
  EXPECT_DOUBLE_EQ(shares.back(), 1);
  std::atomic<bool> cancelled{true};
  EXPECT_THROW(Read(model, 4, 64, {{}, &cancelled}), Cancelled);
}

// An answer is the dense answer to the tokens that were chosen, as a prompt of their own, bit for bit.
TEST_F(FilterTest, AnswersTheChosenTokensAsAPrompt) {
  const std::unique_ptr<Engine> engine = Engine::Load(kMini, {.threads = 2});
  Request request;
  request.tokens = tokens_;
  request.max_tokens = 8;
  request.ignore_eos = true;
  std::vector<std::vector<float>> logits;
  request.on_logits = [&](std::span<const float> row) { logits.emplace_back(row.begin(), row.end()); };
  request.prune = "gemfilter:layer=3,keep=0.3,min=0";
  TraceRecorder recorder;
  request.trace = &recorder;
  const Answer answer = engine->Generate(request);
  request.trace = nullptr;
  ASSERT_TRUE(answer.prune_active);
  const std::vector<int32_t>& entered = recorder.trace().entered;
  const auto count = std::ssize(tokens_);
  ASSERT_EQ(std::ssize(entered), static_cast<int64_t>(0.3 * static_cast<double>(count)));
  ASSERT_EQ(entered.back(), count - 1);

  const auto with_filter = std::move(logits);
  logits.clear();
  request.tokens.clear();
  for (const int32_t i : entered) request.tokens.push_back(tokens_[static_cast<size_t>(i)]);
  request.prune = "none";
  const Answer alone = engine->Generate(request);
  EXPECT_EQ(answer.tokens, alone.tokens);
  EXPECT_EQ(with_filter, logits);
  const ModelShape& shape = engine->model().config().shape;
  EXPECT_NEAR(answer.ledger.prefill_flops(), alone.ledger.prefill_flops() + FilterFlops(shape, count, 3), 1);
}

// The first pass counts in the ledger, a dry run counts the same, and a doubtful answer is the dense one.
TEST_F(FilterTest, EndToEnd) {
  const std::unique_ptr<Engine> engine = Engine::Load(kMini, {.threads = 2});
  Request request;
  request.tokens = tokens_;
  request.max_tokens = 2;
  request.prune = "none";
  const Answer dense = engine->Generate(request);
  request.prune = "gemfilter:keep=100,min=0";
  int calls = 0;
  request.scoring = [&](double) { ++calls; };
  const Answer answer = engine->Generate(request);
  EXPECT_TRUE(answer.prune_active) << answer.prune_reason;
  EXPECT_GT(calls, 0);
  EXPECT_EQ(answer.ledger.layers()[0].kv_rows, 100);

  const DryRun plan = PlanRun(engine->model().config(), tokens_, request.prune, *backend_);
  EXPECT_TRUE(plan.active);
  EXPECT_DOUBLE_EQ(plan.ledger.selection_flops, answer.ledger.selection_flops);
  EXPECT_DOUBLE_EQ(plan.ledger.prefill_flops(), answer.ledger.prefill_flops());

  request.least_confidence = 1;
  const Answer trusted = engine->Generate(request);
  EXPECT_TRUE(trusted.fell_back);
  EXPECT_EQ(trusted.tokens, dense.tokens);
  EXPECT_GT(trusted.ledger.selection_flops, answer.ledger.selection_flops);

  request.least_confidence = 0;
  request.protection.first = 5;
  EXPECT_GE(engine->Generate(request).ledger.layers()[0].kv_rows, 100);
  std::atomic<bool> cancelled{false};
  request.cancelled = &cancelled;
  request.scoring = [&](double share) { cancelled = share > 0.5; };
  EXPECT_THROW(engine->Generate(request), Cancelled);
}

}  // namespace
}  // namespace coppice::filter_pass_test
