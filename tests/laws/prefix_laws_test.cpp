// The laws of the partial-depth prefix (model/prefix.h), over every method, every arithmetic and every cache
// type: what a prompt takes over changes nothing but the work. docs/laws.md lists them.
#include <gtest/gtest.h>

#include <atomic>

#include "prefix_laws_support.h"
#include "shape_edit.h"

namespace coppice::prefix_laws_test {
namespace {

class PrefixLaws : public PrefixBase, public testing::WithParamInterface<PrefixCase> {
 protected:
  void SetUp() override {
    Start(GetParam().arm);
    if (IsSkipped()) return;
    document_ = RandomPrompt(entry_.tokens, 50);
    rules_ = Rules(entry_.active, document_);
  }
  bool SharesNothing() const { return entry_.shared == LayerPoint(); }

  const MethodEntry entry_ = GetParam().entry;
  std::vector<int32_t> document_;
  PrefixRules rules_;
};

// D1: the point is the one that the method's equations have.
TEST_P(PrefixLaws, ThePointIsTheMethodsOwn) { EXPECT_EQ(rules_.point, entry_.shared); }

// D2: whatever is taken over, the run is the fresh run: its logits and those of generated tokens, its sets,
// its caches, what it parked, its trace.
TEST_P(PrefixLaws, TakingOverChangesNothing) {
  if (SharesNothing()) GTEST_SKIP() << "it looks at the whole prompt from the start";
  for (const std::string& architecture : TinyArchitectures(*backend_)) {
    SCOPED_TRACE(architecture);
    tiny_ = MakeTiny({.architecture = architecture, .head_dim = head_dim_});
    const bool llama = std::string_view(architecture) == "llama";
    PrefixCapture capture(rules_.point, kLayers);
    const RunResult first = Run(document_, {.spec = entry_.active, .decode = kSteps, .capture = &capture});
    const std::shared_ptr<const PrefixState> state = capture.Take(document_);
    ASSERT_NE(state, nullptr);
    EXPECT_TRUE(state->complete);
    EXPECT_EQ(state->point, rules_.point);
    EXPECT_EQ(state->bytes(), PrefixBytes(tiny_.config.shape, backend_->cache_dtype(), rules_.point,
                                          static_cast<int64_t>(document_.size())));
    ExpectSameRun(first, Run(document_, {.spec = entry_.active, .decode = kSteps}));
    // Odd numbers of tokens, the whole document, and all that the method's tail leaves of the same prompt.
    const int64_t all = entry_.tokens;
    for (const auto& [rows, tokens] :
         {std::pair<int64_t, int64_t>{77, all}, {1, all}, {all, all + 61}, {all, all}}) {
      if (!llama && rows != 77) continue;
      const std::vector<int32_t> prompt = Question(document_, rows, tokens);
      const int64_t taken = std::min(rows, tokens - Rules(entry_.active, prompt).tail);
      SCOPED_TRACE(testing::Message() << taken << " of " << tokens);
      TraceRecorder of_fresh, of_run;
      const RunResult fresh = Run(prompt, {.spec = entry_.active, .decode = kSteps, .trace = &of_fresh});
      const RunResult run = Run(prompt, {.spec = entry_.active,
                                         .decode = kSteps,
                                         .tile_rows = 48,
                                         .trace = &of_run,
                                         .prefix = {state, taken}});
      ExpectSameRun(run, fresh);
      EXPECT_EQ(of_run.Take(), of_fresh.Take());
    }
  }
}

// D3: the ledger counts what ran, by the closed form.
TEST_P(PrefixLaws, LedgerCountsWhatRan) {
  if (SharesNothing()) GTEST_SKIP() << "it looks at the whole prompt from the start";
  const std::shared_ptr<const PrefixState> state = Capture(document_, entry_.active, rules_.point);
  const std::vector<int32_t> prompt = Question(document_, 101, entry_.tokens);
  const RunResult fresh = Run(prompt, {.spec = entry_.active});
  const RunResult run = Run(prompt, {.spec = entry_.active, .prefix = {state, 101}});
  EXPECT_EQ(run.state.ledger.cached_tokens, 101);
  EXPECT_EQ(fresh.state.ledger.cached_tokens, 0);
  const double d = 64, c = head_dim_, h = 8, g = 2, i = 96;
  double flops = 2 * d * 50;
  for (int l = 0; l < kLayers; ++l) {
    SCOPED_TRACE(l);
    const LayerCounts& counts = run.state.ledger.layers()[static_cast<size_t>(l)];
    const LayerCounts& all = fresh.state.ledger.layers()[static_cast<size_t>(l)];
    const bool last = l + 1 == kLayers;
    const int64_t saved = l < LayersWithKeys(rules_.point) ? 101 : 0;
    const int64_t saved_ffn = !last && l < rules_.point.layer ? 101 : 0;
    EXPECT_EQ(counts.kv_rows, all.kv_rows - saved);
    EXPECT_EQ(counts.ffn_rows, all.ffn_rows - saved_ffn);
    EXPECT_EQ(counts.query_rows, last ? 1 : counts.kv_rows);
    const auto n = static_cast<double>(all.kv_rows);
    const auto p = static_cast<double>(saved);
    flops += 2 * d * g * c * (2 * (n - p) + static_cast<double>(counts.probed_rows)) +
             4 * d * h * c * (last ? 1 : n - p) + (last ? 4 * h * c * n : 2 * h * c * (n * n - p * p)) +
             6 * d * i * static_cast<double>(all.ffn_rows - saved_ffn);
  }
  EXPECT_DOUBLE_EQ(run.state.ledger.prefill_flops(), flops);
  EXPECT_LT(flops, fresh.state.ledger.prefill_flops());
  EXPECT_EQ(run.state.ledger.prefill_flops_dense(), fresh.state.ledger.prefill_flops_dense());
}

// D4: what a run leaves that took something over is what a fresh run leaves: turn after turn.
TEST_P(PrefixLaws, TurnsOfAConversation) {
  if (SharesNothing()) GTEST_SKIP() << "it looks at the whole prompt from the start";
  std::vector<int32_t> prompt = document_;
  std::shared_ptr<const PrefixState> state = Capture(prompt, entry_.active, rules_.point);
  for (const uint64_t turn : {1, 2}) {
    SCOPED_TRACE(turn);
    const int64_t before = static_cast<int64_t>(prompt.size());
    prompt = Joined(std::move(prompt), RandomPrompt(63, 50, turn));
    const PrefixRules rules = Rules(entry_.active, prompt);
    ASSERT_EQ(rules.point, rules_.point);
    PrefixCapture capture(rules.point, kLayers);
    const int64_t taken = std::min<int64_t>(before, static_cast<int64_t>(prompt.size()) - rules.tail);
    const RunResult run =
        Run(prompt, {.spec = entry_.active, .decode = kSteps, .prefix = {state, taken}, .capture = &capture});
    ExpectSameRun(run, Run(prompt, {.spec = entry_.active, .decode = kSteps}));
    state = capture.Take(prompt);
    ASSERT_NE(state, nullptr);
    ExpectSameState(*state, *Capture(prompt, entry_.active, rules.point));
  }
}

// D5: a prefill that was cancelled goes on in a retry, from the last layer that it began.
TEST_P(PrefixLaws, ACancelledPrefillGoesOn) {
  if (SharesNothing()) GTEST_SKIP() << "it looks at the whole prompt from the start";
  const RunResult fresh = Run(document_, {.spec = entry_.active, .decode = kSteps});
  for (int layer = 0; layer < kLayers; ++layer) {
    SCOPED_TRACE(layer);
    std::atomic<bool> cancelled = false;
    const RunControl control{.progress = [&](double done) { cancelled = done >= layer + 0.05; },
                             .cancelled = &cancelled};
    PrefixCapture capture(rules_.point, kLayers);
    const RunOptions stopped{.spec = entry_.active, .capture = &capture, .control = control};
    EXPECT_THROW(Run(document_, stopped), Cancelled);
    const std::shared_ptr<const PrefixState> state = capture.Take(document_);
    if (layer == 0) {
      EXPECT_EQ(state, nullptr);
      continue;
    }
    ASSERT_NE(state, nullptr);
    const LayerPoint reached{layer, false};
    EXPECT_EQ(state->point, std::min(reached, rules_.point));
    EXPECT_EQ(state->complete, reached >= rules_.point);
    const int64_t taken = entry_.tokens - rules_.tail;
    PrefixCapture again(rules_.point, kLayers);
    const RunResult run = Run(
        document_, {.spec = entry_.active, .decode = kSteps, .prefix = {state, taken}, .capture = &again});
    ExpectSameRun(run, fresh);
    ExpectSameState(*again.Take(document_), *Capture(document_, entry_.active, rules_.point));
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, PrefixLaws, testing::ValuesIn(PrefixCases()), CaseName);

class PrefixAcross : public PrefixBase, public testing::WithParamInterface<LawArm> {
 protected:
  void SetUp() override { Start(GetParam()); }
};

// D6: states belong to no method: whatever run left them, every run takes them over whose first choice is not
// earlier.
TEST_P(PrefixAcross, AnyMethodsStatesServe) {
  const std::vector<int32_t> document = RandomPrompt(200, 50);
  int served = 0;
  for (const MethodEntry& from : PrefixEntries()) {
    if (from.shared == LayerPoint() || from.tokens != 200) continue;
    const std::shared_ptr<const PrefixState> state = Capture(document, from.active, from.shared);
    for (const MethodEntry& to : PrefixEntries()) {
      if (to.shared < from.shared || to.tokens != 200 || to.name == from.name) continue;
      SCOPED_TRACE(from.name + " for " + to.name);
      const std::vector<int32_t> prompt = Question(document, 133, 200);
      const RunResult run = Run(prompt, {.spec = to.active, .decode = 3, .prefix = {state, 133}});
      ExpectSameRun(run, Run(prompt, {.spec = to.active, .decode = 3}));
      ++served;
    }
  }
  EXPECT_GT(served, 50);
}

// A window cuts the keys of a row, wherever they come from.
TEST_P(PrefixAcross, ASlidingWindow) {
  SetInAll(tiny_.config.shape, &LayerShape::window, 32);
  const std::vector<int32_t> document = RandomPrompt(200, 50);
  const std::shared_ptr<const PrefixState> state = Capture(document, "none", {kLayers, false});
  const std::vector<int32_t> prompt = Question(document, 133, 200);
  const RunResult run = Run(prompt, {.decode = 3, .prefix = {state, 133}});
  ExpectSameRun(run, Run(prompt, {.decode = 3}));
  const LayerCounts& counts = run.state.ledger.layers()[0];
  EXPECT_EQ(LayerFlops(tiny_.config.shape, counts) - 67 * LayerFlops(tiny_.config.shape, {1, 1, 1}),
            4.0 * 8 * head_dim_ * (67 * 32 - 67 * 0.5));
}

INSTANTIATE_TEST_SUITE_P(Arms, PrefixAcross, testing::ValuesIn(kArms),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace coppice::prefix_laws_test
