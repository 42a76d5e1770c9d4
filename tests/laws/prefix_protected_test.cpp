// The laws of prompts whose first rows are protected: they take these rows over from any run, a dense one
// too, and leave them as a dense run does. docs/laws.md lists them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "prefix_laws_support.h"

namespace coppice::prefix_protected_test {
namespace {

constexpr LayerPoint kEnd{kLayers, false};

// Methods that read more of protected rows than keys, or that change what these attend: they take nothing
// over from points later than their own.
bool ReadsMore(const MethodEntry& entry) {
  for (const char* name : {"sdtp", "spts", "h2o", "minference", "flexprefill", "xattention", "flashprefill",
                           "sdtp_snapkv", "ftp_xattention", "ftp_fill"}) {
    if (entry.name == name) return true;
  }
  return false;
}

std::vector<PrefixCase> ProtectedCases() {
  std::vector<PrefixCase> cases = PrefixCases();
  for (const LawArm& arm : {kArms[0], kArms[2]}) {
    cases.push_back({arm, {.name = "ftp_fill", .active = "ftp:eta=0.5,dense=2,last=8,fill=mean,min=0"}});
    cases.push_back(
        {arm, {.name = "sliminfer_late", .active = "sliminfer:layers=5,keep=100,block=8,last=1,min=0"}});
  }
  return cases;
}

// What a user protects, and where the question stands, in a prompt of `tokens` tokens.
struct Marks {
  const char* name;
  Protection protection;
  std::vector<PositionSpan> question = {};
};

std::vector<Marks> MarksOf(int64_t tokens) {
  return {
      {"the beginning", {.first = 91, .last = 0, .spans = {}}},
      {"spans", {.first = 2, .last = 9, .spans = {{60, 104}, {1, 61}, {120, 123}}}},
      {"a question behind", {.first = 80, .last = 3, .spans = {{130, 140}}}, {{130, 140}}},
      {"a question that may be dropped", {.first = 80, .last = 3, .spans = {}}, {{150, 160}}},
      {"a question in front", {.first = 99, .last = 20, .spans = {}}, {{40, 70}}},
      {"a question on both sides", {.first = 99, .last = 20, .spans = {}}, {{90, 97}, {110, 112}}},
      {"apart", {.first = 91, .last = 12, .spans = {{100, 104}}, .apart = true}, {{130, 140}}},
      {"a little apart", {.first = tokens - 30, .last = 3, .spans = {}, .apart = true}},
      {"all but a little", {.first = tokens - 30, .last = 25, .spans = {}}},
  };
}

class ProtectedPrefixLaws : public PrefixBase, public testing::WithParamInterface<PrefixCase> {
 protected:
  void SetUp() override {
    Start(GetParam().arm);
    if (!IsSkipped()) document_ = RandomPrompt(entry_.tokens, 50);
  }
  PrefixRules RulesWith(const std::vector<int32_t>& prompt, const Marks& marks) const {
    const Transformer model = tiny_.Make();
    return RulesOf(
        *MakePolicy(entry_.active, TinyContext(model, prompt, *backend_, marks.question), marks.protection)
             .policy,
        kLayers, std::ssize(prompt));
  }
  RunOptions OptionsOf(const Marks& marks) const {
    return {.spec = entry_.active,
            .protection = marks.protection,
            .question = marks.question,
            .decode = kSteps,
            .tile_rows = 48};
  }

  const MethodEntry entry_ = GetParam().entry;
  std::vector<int32_t> document_;
};

// The first rows of a state.
void ExpectFirstRowsOf(const PrefixState& state, const PrefixState& whole, int64_t rows) {
  ASSERT_EQ(state.rows(), rows);
  EXPECT_TRUE(std::equal(state.tokens.begin(), state.tokens.end(), whole.tokens.begin()));
  EXPECT_EQ(state.point, whole.point);
  EXPECT_TRUE(state.complete);
  ASSERT_EQ(state.layers.size(), whole.layers.size());
  for (size_t l = 0; l < state.layers.size(); ++l) {
    SCOPED_TRACE(l);
    for (const auto member : {&PrefixState::Layer::keys, &PrefixState::Layer::values}) {
      const TensorView mine = (state.layers[l].*member).view();
      const TensorView first = (whole.layers[l].*member).view().Rows(0, rows);
      EXPECT_EQ(
          std::memcmp(mine.data, first.data, static_cast<size_t>(BytesOf(mine.dtype, mine.cols) * rows)), 0);
    }
  }
}

// `point`: that of the states taken over, whose rows ran the FFNs below it.
void ExpectRowsAddUp(const Ledger& run, const Ledger& fresh, LayerPoint point) {
  for (int l = 0; l < kLayers; ++l) {
    const LayerCounts& counts = run.layers()[static_cast<size_t>(l)];
    const LayerCounts& all = fresh.layers()[static_cast<size_t>(l)];
    EXPECT_EQ(counts.kv_rows + counts.taken_over, all.kv_rows) << l;
    const int64_t ran_before = l < point.layer && l + 1 < kLayers ? counts.taken_over : 0;
    EXPECT_EQ(counts.ffn_rows + ran_before, all.ffn_rows) << l;
  }
}

// D8: whatever run left the states of the protected rows, at whatever point, the run that takes them over is
// the fresh run: its logits and those of generated tokens, its sets, its caches, what it parked, its trace.
TEST_P(ProtectedPrefixLaws, TakingOverDenseRowsChangesNothing) {
  int64_t most = 0;
  std::map<LayerPoint, std::shared_ptr<const PrefixState>> states;  // of dense runs
  for (const Marks& marks : MarksOf(entry_.tokens)) {
    SCOPED_TRACE(marks.name);
    const std::vector<int32_t> prompt = Question(document_, 105, entry_.tokens);
    const PrefixRules rules = RulesWith(prompt, marks);
    const int64_t taken = std::min<int64_t>(rules.dense_taken, 105);
    if (rules.point < kEnd) most = std::max(most, rules.dense_taken);  // else it stands aside
    EXPECT_LE(rules.dense_taken, rules.dense);
    if (taken <= 0) continue;
    TraceRecorder of_fresh;
    RunOptions options = OptionsOf(marks);
    options.trace = &of_fresh;
    const RunResult fresh = Run(prompt, options);
    const Trace trace = of_fresh.Take();
    for (const LayerPoint point : {kEnd, LayerPoint{5, false}, LayerPoint{3, true}}) {
      if (point <= rules.point) continue;
      SCOPED_TRACE(point.layer);
      std::shared_ptr<const PrefixState>& state = states[point];
      if (state == nullptr) state = Capture(document_, "none", point);
      for (const int64_t rows : {taken, std::min<int64_t>(taken, 37)}) {
        TraceRecorder of_run;
        options.trace = &of_run;
        options.prefix = {state, rows};
        const RunResult run = Run(prompt, options);
        ExpectSameRun(run, fresh);
        EXPECT_EQ(of_run.Take(), trace);
        EXPECT_EQ(run.state.ledger.cached_tokens, rows);
        ExpectRowsAddUp(run.state.ledger, fresh.state.ledger, point);
      }
    }
  }
  if (entry_.shared < kEnd) {
    EXPECT_EQ(most > 0, !ReadsMore(entry_));
  }
}

// D9: a pruned run leaves of the rows that it protects what a dense run leaves, also where it took some of
// them over.
TEST_P(ProtectedPrefixLaws, LeavesWhatADenseRunLeaves) {
  for (const Marks& marks : MarksOf(entry_.tokens)) {
    SCOPED_TRACE(marks.name);
    const std::vector<int32_t> prompt = Question(document_, 105, entry_.tokens);
    const PrefixRules rules = RulesWith(prompt, marks);
    if (rules.dense == 0) continue;
    const std::shared_ptr<const PrefixState> dense = Capture(prompt, "none", kEnd);
    const int64_t few = std::min<int64_t>(rules.dense_taken, 50);
    for (const int64_t rows : {int64_t{0}, few}) {
      if (rows == 0 && few == 0) continue;
      RunOptions options = OptionsOf(marks);
      PrefixCapture capture(kEnd, kLayers, rules.dense);
      options.capture = &capture;
      if (rows > 0) options.prefix = {dense, rows};
      Run(prompt, options);
      const std::shared_ptr<const PrefixState> state = capture.Take(prompt);
      ASSERT_NE(state, nullptr);
      ExpectFirstRowsOf(*state, *dense, rules.dense);
    }
  }
}

// A share is one of what follows the rows that are apart, and these take no places, however high they score.
TEST(ProtectedApart, SharesAreOfWhatFollows) {
  const auto backend = MakeBackendOrSkip("cpu", {.threads = 1, .exact = true, .cache_type = std::nullopt});
  if (!backend) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
  const TinyModel tiny = MakeTiny({});
  const std::vector<int32_t> prompt = RandomPrompt(300, 50);
  const auto kept = [&](const std::string& spec, const Protection& protection, size_t layer) {
    const RunResult run = RunTiny(tiny.Make(), prompt, *backend, {.spec = spec, .protection = protection});
    return std::ssize(run.kept[layer]);
  };
  const Protection apart{.first = 200, .last = 0, .spans = {}, .apart = true};
  EXPECT_EQ(kept("static:layer=2,keep=0.3,min=0", apart, 3), 200 + 30);
  EXPECT_EQ(kept("lazyllm:layers=2/4,keep=0.5,min=0", apart, 3), 200 + 50);
  EXPECT_EQ(kept("lazyllm:layers=2/4,keep=0.5,min=0", apart, 4), 200 + 25);
  EXPECT_EQ(kept("coppice:layers=2/4,keep=0.4/0.2,floor=0,last=8,widen=2,min=0", apart, 4), 200 + 20);
  EXPECT_EQ(kept("sdtp:file=" + TinySdtpFile() + ",r=0.6,min=0", apart, 3), 200 + 60);
  // Methods that count the whole prompt still do.
  const Protection counted{.first = 200, .last = 0, .spans = {}};
  for (const char* spec : {"sliminfer:layers=2/4,keep=112/64,block=16,last=1,min=0",
                           "fastkv:layer=2,keep=0.4,cache=0.2,min=0", "static:layer=2,keep=0.3,min=0"}) {
    const bool is_static = std::string_view(spec).starts_with("static");
    EXPECT_EQ(kept(spec, apart, 4) == kept(spec, counted, 4), !is_static) << spec;
  }
  // A short text behind a long beginning is a short prompt.
  const RunResult below = RunTiny(tiny.Make(), prompt, *backend,
                                  {.spec = "static:layer=2,keep=0.3,min=150", .protection = apart});
  EXPECT_FALSE(below.active);
  EXPECT_NE(below.reason.find("100 prompt tokens are below"), std::string::npos) << below.reason;
}

INSTANTIATE_TEST_SUITE_P(Methods, ProtectedPrefixLaws, testing::ValuesIn(ProtectedCases()), CaseName);

}  // namespace
}  // namespace coppice::prefix_protected_test
