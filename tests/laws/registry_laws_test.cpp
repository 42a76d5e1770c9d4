// Laws of where methods act and how much they keep, over every method of the registry: the question stays, a
// method acts only where it can leave something out, budgets are of the tokens that enter, and what is held
// is no more than dense. Counts depend on no arithmetic: the cpu backend in fp32 stands for all.
#include <gtest/gtest.h>

#include "engine/dry_run.h"
#include "laws_support.h"
#include "laws_table.h"

namespace coppice::registry_laws_test {
namespace {

class RegistryLaws : public testing::TestWithParam<MethodEntry> {
 protected:
  void SetUp() override {
    backend_ = MakeBackendOrSkip("cpu", {.threads = 2, .exact = true});
    if (!backend_) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
  }
  RunResult Run(int64_t tokens, const RunOptions& options) {
    return RunTiny(llama_.Make(), RandomPrompt(tokens, 50), *backend_, options);
  }
  static unsigned Traits() {
    for (const MethodInfo& method : Methods()) {
      if (method.name == GetParam().name) return method.traits;
    }
    return 0;
  }

  std::unique_ptr<Backend> backend_;
  TinyModel llama_ = MakeTiny({});
};

// C17: wherever the prompt ends, its last tokens are in every layer: as many as the method promises, and
// those that it promises in every step, too.
TEST_P(RegistryLaws, TheQuestionStays) {
  const MethodEntry& entry = GetParam();
  const std::string& spec = entry.question.empty() ? entry.active : entry.question;
  const int64_t step = entry.question.empty() ? 21 : 1;  // for one token a few lengths are enough
  for (int64_t tokens = 256; tokens < 256 + 64; tokens += step) {
    SCOPED_TRACE(tokens);
    const RunResult run = Run(tokens, {.spec = spec, .decode = 1});
    ASSERT_TRUE(run.active) << run.reason;
    const auto first = static_cast<int32_t>(tokens - entry.question_tokens);
    for (size_t l = 0; l < run.state.layers.size(); ++l) {
      const Positions stored = StoredPositions(run.state, static_cast<int>(l));
      for (int32_t p = first; p < tokens; ++p) {
        ASSERT_TRUE(Has(stored, p)) << "layer " << l << " position " << p;
        // LazyLLM's steps choose among all tokens of the prompt, the last too.
        ASSERT_TRUE(entry.question.empty() || Has(run.attended[0][l], p))
            << "layer " << l << " position " << p;
        ASSERT_TRUE(l == 5 || Has(run.ffn[l], p)) << "layer " << l << " position " << p;
      }
    }
  }
}

bool LeavesSomethingOut(const RunResult& run, int64_t tokens) {
  const Ledger& ledger = run.state.ledger;
  for (size_t l = 0; l < ledger.layers().size(); ++l) {
    const LayerCounts& counts = ledger.layers()[l];
    if (counts.kv_rows < tokens || counts.density < 1 || (l < 5 && counts.ffn_rows < tokens)) return true;
    if (std::ssize(run.attended.back()[l]) < tokens + std::ssize(run.attended)) return true;
  }
  return ledger.flops() - ledger.prefill_flops() < ledger.flops_dense() - ledger.prefill_flops_dense();
}

// C18: a method that says it acts leaves something out, if its settings alone say how much stays.
TEST_P(RegistryLaws, ActsOnlyWhereItLeavesSomethingOut) {
  const MethodEntry& entry = GetParam();
  if (!entry.counts) GTEST_SKIP() << "its scores say how much stays";
  if ((Traits() & kMovesPositions) != 0) GTEST_SKIP() << "it acts on the tokens that are generated, too";
  int acted = 0;
  for (const int64_t tokens : {1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 52, 60, 63, 64, 65, 100, 113, 128, 200}) {
    SCOPED_TRACE(tokens);
    const RunResult run = Run(tokens, {.spec = entry.active, .decode = 2});
    EXPECT_EQ(run.active, run.reason.empty()) << run.reason;
    if (!run.active) continue;
    EXPECT_TRUE(LeavesSomethingOut(run, tokens));
    ++acted;
  }
  EXPECT_GT(acted, 0);
}

// C19: behind a method that lets half of the prompt in, the rows kept are about those of a prompt of half the
// length, whether the tokens keep their positions or not.
TEST_P(RegistryLaws, BudgetsAreOfWhatEnters) {
  const MethodEntry& entry = GetParam();
  if (!entry.counts || (Traits() & (kSelectsInput | kMovesPositions)) != 0)
    GTEST_SKIP() << "its scores say how much stays, or it is the one that selects";
  if (!entry.budget) GTEST_SKIP() << "it names positions of the prompt, not a budget";
  const int64_t half = entry.tokens / 2;
  const RunResult alone = Run(half, {.spec = entry.active, .decode = 2});
  ASSERT_TRUE(alone.active) << alone.reason;
  for (const std::string positions : {"original", "compact"}) {
    SCOPED_TRACE(positions);
    const RunResult behind =
        Run(entry.tokens,
            {.spec = "random:keep=0.5,min=0,positions=" + positions + "+" + entry.active, .decode = 2});
    ASSERT_TRUE(behind.active) << behind.reason;
    for (size_t l = 0; l < 6; ++l) {
      const LayerCounts& mine = behind.state.ledger.layers()[l];
      EXPECT_NEAR(mine.kv_rows, alone.state.ledger.layers()[l].kv_rows, 16) << "layer " << l;
      EXPECT_NEAR(behind.state.layers[l].cache.rows(), alone.state.layers[l].cache.rows(), 16)
          << "layer " << l;
    }
  }
}

// C20: a dry run counts what a run computes and holds, if the settings alone say how much stays.
TEST_P(RegistryLaws, ADryRunCountsWhatRuns) {
  const MethodEntry& entry = GetParam();
  if (!entry.counts || !entry.planned)
    GTEST_SKIP() << "its scores say how much stays, or come from a second model";
  const Transformer model = llama_.Make();
  const std::vector<int32_t> prompt = RandomPrompt(entry.tokens, 50);
  for (const std::string before : {"", "random:keep=0.5,min=0+"}) {
    const std::string spec = before + entry.active;
    if ((Traits() & kSelectsInput) != 0 && !before.empty()) continue;  // its scores say what both let in
    if ((Traits() & kMovesPositions) != 0 && !before.empty()) continue;
    SCOPED_TRACE(spec);
    const RunResult run = RunTiny(model, prompt, *backend_, {.spec = spec});
    const Ledger plan = PlanRun(model.config(), prompt, spec, *backend_).ledger;
    for (size_t l = 0; l < 6; ++l) {
      const LayerCounts& planned = plan.layers()[l];
      const LayerCounts& ran = run.state.ledger.layers()[l];
      EXPECT_EQ(planned.kv_rows, ran.kv_rows) << "layer " << l;
      EXPECT_EQ(planned.query_rows, ran.query_rows) << "layer " << l;
      EXPECT_EQ(planned.probed_rows, ran.probed_rows) << "layer " << l;
      EXPECT_EQ(planned.ffn_rows, ran.ffn_rows) << "layer " << l;
    }
    EXPECT_EQ(plan.peak_kv_bytes, run.state.kv_bytes());
    EXPECT_EQ(plan.peak_held_bytes, run.state.kv_bytes() + run.state.aux.bytes());
  }
}

// C6: whatever a run holds in memory, parked states included, is no more than the dense cache, in every type
// of cache.
TEST(RegistryLawsOfMemory, HeldBytesAreNoMoreThanDense) {
  const TinyModel wide = MakeTiny({.head_dim = 32});
  const std::vector<int32_t> prompt = RandomPrompt(200, 50);
  for (const DType cache : {DType::kBF16, DType::kQ8_0}) {
    const auto be = MakeBackendOrSkip("cpu", {.threads = 2, .cache_type = cache});
    if (!be) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
    for (const MethodEntry& entry : LawEntries()) {
      SCOPED_TRACE(entry.name);
      for (const int64_t steps : {0, 3}) {
        const RunResult run = RunTiny(wide.Make(), prompt, *be, {.spec = entry.active, .decode = steps});
        const RunResult dense = RunTiny(wide.Make(), prompt, *be, {.decode = steps});
        EXPECT_LE(run.state.kv_bytes() + run.state.aux.bytes(), dense.state.kv_bytes()) << steps;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, RegistryLaws, testing::ValuesIn(LawEntries()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace coppice::registry_laws_test
