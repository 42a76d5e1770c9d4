// A second model that reads the prompt for speculative prefill.
#include "engine/draft_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/dry_run.h"
#include "engine/engine.h"
#include "engine/open_model.h"
#include "policies/methods/specprefill.h"
#include "test_files.h"
#include "tests_support.h"

namespace coppice {
namespace {

using testing::HasSubstr;

const std::string kMini = COPPICE_SOURCE_DIR "/models/coppice-mini-f16.gguf";

class DraftTest : public testing::Test {
 protected:
  void SetUp() override {
    backend_ = MakeNativeBackendOrSkip("cpu", {.threads = 2, .exact = true});
    if (!backend_) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
    opened_ = OpenModel(kMini);
    std::string text;
    for (int i = 0; i < 30; ++i) text += "The key of door " + std::to_string(i * 7919 % 10007) + " is blue. ";
    tokens_ = opened_.tokenizer->Encode(text + "What is the key of door 7919?");
  }

  std::unique_ptr<Backend> backend_;
  OpenedModel opened_;
  std::vector<int32_t> tokens_;
};

// The queries that score are those of a plain greedy run: the same steps by hand, with a policy that watches.
TEST_F(DraftTest, ReadsAsAGreedyRunWould) {
  const DraftReader reader(kMini, *opened_.tokenizer, 64);
  const auto count = std::ssize(tokens_);
  const DraftReading reading = reader.Read(tokens_, 4, 13, {}, *backend_);
  ASSERT_EQ(std::ssize(reading.importance), count);

  const Transformer model = MakeTransformer(opened_.store, opened_.config);
  Workspace workspace = model.NewWorkspace(512);
  LookAhead scores(count, 13);
  TokenPolicy dense;
  Tensor logits;
  SequenceState sequence = model.NewSequence(count - 1, count + 4, *backend_);
  model.Prefill(std::span(tokens_).first(tokens_.size() - 1), {dense, sequence, workspace, *backend_},
                logits);
  int32_t next = tokens_.back();
  for (int k = 0; k < 4; ++k) {
    model.Decode(next, {scores, sequence, workspace, *backend_}, logits);
    scores.EndQuery();
    const std::span<const float> row = logits.view().Row<float>(0);
    next = static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
    ASSERT_FALSE(opened_.tokenizer->EndsGeneration(next)) << "choose another prompt";
  }
  EXPECT_EQ(reading.importance, scores.Importance());
  const double closed_form = LookAheadFlops(model.config().shape, count, 4);
  EXPECT_NEAR(reading.flops / closed_form, 1, 1e-12);
}

TEST_F(DraftTest, CanBeCancelledAndReportsProgress) {
  const DraftReader reader(kMini, *opened_.tokenizer, 64);
  std::vector<double> shares;
  reader.Read(tokens_, 2, 13, {[&](double share) { shares.push_back(share); }}, *backend_);
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  ASSERT_GT(shares.size(), 10u);
  EXPECT_DOUBLE_EQ(shares.back(), 1);
  std::atomic<bool> cancelled{true};
  EXPECT_THROW(reader.Read(tokens_, 2, 13, {{}, &cancelled}, *backend_), Cancelled);
}

TEST_F(DraftTest, RefusesOtherTokens) {
  const std::unique_ptr<Tokenizer>& same = opened_.tokenizer;
  EXPECT_EQ(DraftReader(kMini, *same, 64).Refusal(tokens_), "");
  const std::vector<int32_t> longer(static_cast<size_t>(opened_.config.context) + 1, 5);
  EXPECT_THAT(DraftReader(kMini, *same, 64).Refusal(longer), HasSubstr("was trained for"));
  EXPECT_THAT(DraftReader(kMini, *same, 64).Refusal(std::vector<int32_t>{1, 1 << 20}),
              HasSubstr("no token 1048576"));
  const TempFolder folder;
  folder.Write("vocab.json", R"({"a": 0, "b": 1, "ab": 2})");
  folder.Write("merges.txt", "a b\n");
  const std::unique_ptr<Tokenizer> other = Tokenizer::FromHfFolder(folder.path());
  EXPECT_THAT(ErrorOf([&] { DraftReader(kMini, *other, 64); }),
              testing::AllOf(HasSubstr(kMini), HasSubstr("the same tokenizer")));
}

// The whole of it: the draft's time and work count, what enters keeps its position, and a doubtful answer is
// the dense one.
TEST_F(DraftTest, EndToEnd) {
  const std::unique_ptr<Engine> engine = Engine::Load(kMini, {.threads = 2});
  Request request;
  request.tokens = tokens_;
  request.max_tokens = 2;
  request.prune = "none";
  const Answer dense = engine->Generate(request);
  request.prune = "specprefill:draft=" + kMini + ",keep=0.3,min=0";
  int calls = 0;
  request.scoring = [&](double) { ++calls; };
  TraceRecorder recorder;
  request.trace = &recorder;
  const Answer answer = engine->Generate(request);
  request.trace = nullptr;
  EXPECT_TRUE(answer.prune_active);
  EXPECT_GT(calls, 0);
  const auto count = std::ssize(tokens_);
  const int64_t chunks = (count + 31) / 32;
  const int64_t kept = answer.ledger.layers()[0].kv_rows;
  EXPECT_LE(kept, (chunks * 3 + 9) / 10 * 32 + 1);
  EXPECT_GT(kept, (chunks * 3 + 9) / 10 * 32 - 32);
  // The draft may end its answer before the eighth query.
  const ModelShape& shape = engine->model().config().shape;
  EXPECT_GE(answer.ledger.selection_flops, LookAheadFlops(shape, count, 1));
  EXPECT_LE(answer.ledger.selection_flops, LookAheadFlops(shape, count, 8));
  EXPECT_GT(answer.ledger.prefill_flops(), answer.ledger.selection_flops);

  const DryRun plan = PlanRun(engine->model().config(), tokens_, request.prune, *backend_);
  EXPECT_TRUE(plan.active);
  EXPECT_NEAR(static_cast<double>(plan.ledger.layers()[0].kv_rows), static_cast<double>(kept), 32);
  EXPECT_DOUBLE_EQ(plan.ledger.selection_flops, LookAheadFlops(shape, count, 8));

  request.least_confidence = 1;
  const Answer trusted = engine->Generate(request);
  EXPECT_TRUE(trusted.fell_back);
  EXPECT_EQ(trusted.tokens, dense.tokens);
  EXPECT_GT(trusted.ledger.selection_flops, answer.ledger.selection_flops);

  request.least_confidence = 0;
  request.prune = "specprefill:draft=/nonexistent.gguf";
  EXPECT_THAT(ErrorOf([&] { engine->Generate(request); }), HasSubstr("/nonexistent.gguf"));
  const std::unique_ptr<Engine> bare = Engine::FromShape("tiny", {.threads = 2});
  request.tokens = std::vector<int32_t>(1100, 3);
  request.prune = "specprefill:draft=" + kMini;
  EXPECT_THAT(bare->Generate(request).prune_reason, HasSubstr("no tokenizer"));
}

}  // namespace
}  // namespace coppice
