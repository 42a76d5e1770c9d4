// What holds of models whose layers carry states: every method of the registry acts with the laws or stands
// aside with a reason; tiles, threads, company and resumption change no bit; what was taken back leaves no
// trace; a dropped token is in no later state.
#include <gtest/gtest.h>

#include "laws_support.h"
#include "laws_table.h"
#include "tiny_hybrid.h"

namespace coppice::hybrid_laws_test {
namespace {

constexpr int64_t kTokens = 200;

struct HybridCase {
  Arithmetic arithmetic;
  bool blocks;  // one part alone in a layer: TinyBlocksConfig
};

class HybridLaws : public testing::TestWithParam<HybridCase> {
 protected:
  void SetUp() override {
    be_ = NewBackend(2);
    if (!be_) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
  }
  static std::unique_ptr<Backend> NewBackend(int threads) {
    const Arithmetic& a = GetParam().arithmetic;
    return MakeBackendOrSkip(a.backend, {.threads = threads, .exact = a.exact});
  }
  static TinyModel Tiny() {
    return MakeTinyHybrid(GetParam().blocks ? TinyBlocksConfig() : TinyHybridConfig());
  }
  RunResult Run(const RunOptions& options, Backend* be = nullptr) {
    return RunTiny(model_, prompt_, be == nullptr ? *be_ : *be, options);
  }

  Transformer model_ = Tiny().Make();
  std::vector<int32_t> prompt_ = RandomPrompt(kTokens, 50);
  std::unique_ptr<Backend> be_;
};

// Which methods may act: docs/laws.md. They score in layers that attend, and take nothing back.
const std::vector<std::string>& Acting() {
  static const std::vector<std::string> names = {"sdtp",         "sliminfer",  "coppice",    "random",
                                                 "selective",    "llmlingua2", "uniprefill", "specprefill",
                                                 "gemfilter",    "minference", "xattention", "flexprefill",
                                                 "flashprefill", "drop",       "quest"};
  return names;
}

// H1, and that the others say why not.
TEST_P(HybridLaws, KeepingEverythingIsDense) {
  const RunResult dense = Run({.decode = 12});
  for (const MethodEntry& entry : LawEntries()) {
    SCOPED_TRACE(entry.name);
    for (const std::string& spec : entry.identity) {
      SCOPED_TRACE(spec);
      const RunResult run = Run({.spec = spec, .decode = 12});
      ExpectSameLogits(run, dense);
      EXPECT_TRUE(run.active || !run.reason.empty());
    }
  }
}

TEST_P(HybridLaws, MethodsActOrSayWhyNot) {
  for (const MethodEntry& entry : LawEntries()) {
    prompt_ = RandomPrompt(entry.tokens, 50);
    const RunResult dense = Run({.decode = 4});
    std::string spec = entry.active;
    // Its layer must attend. The tests' settings of coppice and SlimInfer take tokens back.
    if (entry.name == "gemfilter") spec = "gemfilter:layer=1,keep=0.4,positions=original,min=0";
    if (entry.name == "coppice") spec += ",revive=none";
    if (entry.name == "sliminfer")
      spec = "sliminfer:layers=2/4,keep=112/64,block=16,last=1,revive=none,min=0";
    SCOPED_TRACE(spec);
    const RunResult run = Run({.spec = spec, .decode = 4});
    const bool may = std::ranges::find(Acting(), entry.name) != Acting().end();
    EXPECT_EQ(run.active, may) << run.reason;
    if (may) {
      EXPECT_FALSE(SameBits(run.logits.back(), dense.logits.back()));
    } else {
      EXPECT_NE(run.reason, "");
      ExpectSameLogits(run, dense);
    }
  }
}

TEST_P(HybridLaws, CoppiceDropsAndTakesNothingBack) {
  const std::string spec = "coppice:layers=2/4,keep=0.5/0.25,floor=0,last=8,min=0";
  const RunResult run = Run({.spec = spec, .decode = 8});
  ASSERT_TRUE(run.active) << run.reason;
  EXPECT_EQ(run.state.aux.tokens(), 0);
  EXPECT_LT(run.state.ledger.prefill_flops(), 0.8 * run.state.ledger.prefill_flops_dense());
  EXPECT_EQ(run.state.layers[3].cache.rows(), 100 + 8);
  const RunResult revived = Run({.spec = spec + ",revive=aux", .decode = 2});
  EXPECT_FALSE(revived.active);
  EXPECT_NE(revived.reason.find("carry states"), std::string::npos) << revived.reason;
}

TEST_P(HybridLaws, TheTraceSaysWhatEachLayerRead) {
  TraceRecorder recorder;
  const RunResult run =
      Run({.spec = "coppice:layers=2/4,keep=0.5/0.25,floor=0,last=8,min=0", .trace = &recorder});
  const Trace& trace = recorder.trace();
  ASSERT_EQ(trace.prefill.size(), 6u);
  for (const auto& [layer, rows] : {std::pair{0, 200}, {1, 200}, {2, 100}, {3, 100}, {4, 50}, {5, 50}}) {
    EXPECT_EQ(std::ssize(trace.prefill[static_cast<size_t>(layer)].kept), rows) << layer;
    EXPECT_EQ(run.state.ledger.layers()[static_cast<size_t>(layer)].kv_rows, rows) << layer;
  }
}

TEST_P(HybridLaws, TilesAndThreadsChangeNothing) {
  for (const char* spec : {"none", "coppice:layers=2/4,keep=0.5/0.25,floor=0,last=8,min=0"}) {
    SCOPED_TRACE(spec);
    const RunResult wanted = Run({.spec = spec, .decode = 8});
    for (const int64_t tile : {1, 7, 64, 200})
      ExpectSameLogits(Run({.spec = spec, .decode = 8, .tile_rows = tile}), wanted);
    for (const int threads : {1, 3}) {
      const std::unique_ptr<Backend> be = NewBackend(threads);
      ExpectSameLogits(Run({.spec = spec, .decode = 8}, be.get()), wanted);
    }
  }
}

class LeavesOut final : public TokenPolicy {
 public:
  TokenSet Input(int64_t tokens, Backend& /*be*/) override {
    std::vector<int32_t> rows;
    for (int32_t row = 0; row < tokens; ++row) {
      if (row < 40 || row >= 90) rows.push_back(row);
    }
    return TokenSet::Of(std::move(rows), tokens);
  }
};

// S1: a run that drops rows in the input is a run over the rest, where no layer knows positions.
TEST_P(HybridLaws, ADroppedTokenIsInNoState) {
  TinyModel tiny = Tiny();
  for (LayerShape& layer : tiny.config.shape.layers) layer.rope = kNoRope;
  const Transformer model = tiny.Make();
  std::vector<int32_t> left;
  for (size_t i = 0; i < prompt_.size(); ++i) {
    if (i < 40 || i >= 90) left.push_back(prompt_[i]);
  }
  const RunResult shorter = RunTiny(model, left, *be_, {.decode = 6});
  LeavesOut policy;
  const RunResult dropped = RunTiny(model, prompt_, *be_, {.policy = &policy, .decode = 6});
  ExpectSameLogits(dropped, shorter);
}

// A sequence behind its prefill.
struct Behind {
  Behind(const Transformer& model, const std::vector<int32_t>& prompt, Backend& be)
      : sequence(model.NewSequence(std::ssize(prompt), std::ssize(prompt) + 64, be)),
        workspace(model.NewWorkspace(48)),
        pass{dense, sequence, workspace, be} {
    model.Prefill(prompt, pass, logits);
  }
  Behind(const Behind&) = delete;
  TokenPolicy dense;
  SequenceState sequence;
  Workspace workspace;
  Pass pass;
  Tensor logits;
};

// H4: steps of several tokens, of which some are taken back, in the company of another sequence.
TEST_P(HybridLaws, WhatIsTakenBackLeavesNoTrace) {
  const std::vector<int32_t> other_prompt = RandomPrompt(31, 50, 9);
  Behind alone(model_, prompt_, *be_);
  Behind some(model_, prompt_, *be_);
  Behind other(model_, other_prompt, *be_);
  Behind other_alone(model_, other_prompt, *be_);
  const std::vector<int32_t> right = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};
  size_t at = 0;
  for (const size_t accepted : {size_t{1}, size_t{3}, size_t{1}, size_t{2}, size_t{4}, size_t{1}}) {
    std::vector<int32_t> tokens(right.begin() + static_cast<ptrdiff_t>(at),
                                right.begin() + static_cast<ptrdiff_t>(at + accepted));
    const size_t wrong = accepted % 2 == 0 ? 0 : accepted == 1 && at > 0 ? 2 : 3;
    for (size_t i = 0; i < wrong; ++i) tokens.push_back(40 + static_cast<int32_t>(i));
    Tensor of_some;
    Tensor of_other;
    const int32_t next = static_cast<int32_t>(10 + at);
    DecodeStep one{tokens, some.pass, of_some};
    DecodeStep two{{&next, 1}, other.pass, of_other};
    DecodeStep* steps[] = {&one, &two};
    model_.DecodeTogether(steps);
    some.sequence.DropLast(static_cast<int64_t>(wrong));
    for (size_t i = 0; i < accepted; ++i) {
      model_.Decode(right[at + i], alone.pass, alone.logits);
      const auto row = of_some.view().Row<float>(static_cast<int64_t>(i));
      ASSERT_TRUE(SameBits({row.begin(), row.end()}, RowOf(alone.logits))) << at + i;
    }
    model_.Decode(next, other_alone.pass, other_alone.logits);
    ASSERT_TRUE(SameBits(RowOf(of_other), RowOf(other_alone.logits))) << at;
    at += accepted;
  }
}

// D8: a run that takes over the states at any checkpoint is a fresh run.
TEST_P(HybridLaws, ReuseAtAnyCheckpointIsAFreshRun) {
  const std::vector<int64_t> checkpoints = {1, 64, 100, 150, 199, 200};
  for (const char* spec : {"none", "coppice:layers=2/4,keep=0.5/0.25,queries=4,floor=0,last=8,min=0"}) {
    SCOPED_TRACE(spec);
    const LayerPoint point = std::string_view(spec) == "none" ? LayerPoint{6, false} : LayerPoint{2, false};
    PrefixCapture capture(point, 6, PrefixCapture::kAllRows, checkpoints);
    const RunResult first = Run({.spec = spec, .capture = &capture});
    const std::shared_ptr<const PrefixState> state = capture.Take(prompt_);
    ASSERT_NE(state, nullptr);
    const bool has_states = !GetParam().blocks || point.layer > 2;
    EXPECT_EQ(state->has_states, has_states);
    EXPECT_EQ(state->ReusableRows(199), 199);
    EXPECT_EQ(state->ReusableRows(149), has_states ? 100 : 149);
    EXPECT_EQ(state->ReusableRows(0), 0);
    std::vector<int32_t> longer = prompt_;
    for (const int32_t id : RandomPrompt(60, 50, 3)) longer.push_back(id);
    std::swap(prompt_, longer);
    const RunResult fresh = Run({.spec = spec, .decode = 8});
    for (const int64_t rows : checkpoints) {
      SCOPED_TRACE(rows);
      const RunResult resumed = Run({.spec = spec, .decode = 8, .tile_rows = 50, .prefix = {state, rows}});
      ExpectSameLogits(resumed, fresh);
    }
    std::swap(prompt_, longer);
  }
}

// The closed forms of ledger.h.
TEST_P(HybridLaws, LedgerIsTheClosedForm) {
  const RunResult run = Run({.decode = 1});
  const ModelShape& s = model_.config().shape;
  const bool blocks = GetParam().blocks;
  const double d = 64;
  double row = 0;  // of a layer's rows, without attention's pairs
  for (int l = 0; l < 6; ++l) {
    const RecurrentShape& r = s.layer(l).recurrent;
    const auto c = static_cast<double>(r.channels);
    if (l == 0 && !blocks) row += 2 * d * (c + 2 * 6) + 2 * 4 * c + 7 * 8 * 72 + 4 * d * 72;
    if (l == 2) row += 2 * d * (c + 4) + 2 * 4 * c + 5 * 5 * 40 + 4 * d * 40;
    if (l == 4) row += 2 * d * 3 * 64 + 2 * 3 * 64 + 2 * d * 64;
    if (l == 1 || l == 3) row += 4 * d * 2 * 8 + 4 * d * 8 * 8;
    if (l < 5 && !blocks) row += 6 * d * 96;
    if (l == 0 || l == 3) row += blocks ? 4 * d * 96 : 0;
  }
  const double n = kTokens;
  const double pairs = 2 * (2 * 64 * n * n) + (blocks ? 0 : 4 * 64 * n);
  const double last = blocks ? 4 * d * 96 : n * 4 * d * 2 * 8 + 4 * d * 64 + 6 * d * 96;
  EXPECT_DOUBLE_EQ(run.state.ledger.prefill_flops(), n * row + pairs + last + 2 * d * 50);
  EXPECT_DOUBLE_EQ(run.state.ledger.prefill_flops(), run.state.ledger.prefill_flops_dense());
  EXPECT_EQ(run.state.ledger.token_layers(), 6 * (kTokens + 1));
  EXPECT_EQ(run.state.kv_bytes(), (kTokens + 1) * TokenBytes(s, be_->cache_dtype()) + s.StateBytes());
}

// Only layers that carry something hold it.
TEST(TinyBlocks, HoldWhatTheirPartNeeds) {
  const ModelShape s = TinyBlocksConfig().shape;
  const std::vector<int64_t> keys = {0, 64, 0, 64, 0, 0};
  EXPECT_EQ(LayerBytes(s, DType::kBF16), keys);
  EXPECT_TRUE(s.HasStates());
  for (const int l : {0, 1, 3, 5}) EXPECT_EQ(s.layer(l).state_bytes(), 0) << l;
  for (const int l : {2, 4}) EXPECT_GT(s.layer(l).state_bytes(), 0) << l;
}

// A GPU refuses these models.
std::vector<HybridCase> HybridCases() {
  std::vector<HybridCase> cases;
  for (const Arithmetic& a : kArithmetics) {
    if (a.backend == std::string_view("gpu")) continue;
    for (const bool blocks : {false, true}) cases.push_back({a, blocks});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Backends, HybridLaws, testing::ValuesIn(HybridCases()), [](const auto& test) {
  return std::string(test.param.arithmetic.name) + (test.param.blocks ? "_blocks" : "");
});

}  // namespace
}  // namespace coppice::hybrid_laws_test
