// The laws of a prefill that several processes compute together (model/split.h), over every method, every
// arithmetic and every cache type: the number of processes changes no bit. Here the processes are threads;
// tests/mpi has the same with MPI. docs/laws.md lists the laws.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "laws_support.h"
#include "laws_table.h"
#include "thread_comm.h"

namespace coppice::split_laws_test {
namespace {

constexpr int64_t kSteps = 4;

constexpr LawArm kArms[] = {{"reference", "reference", true, std::nullopt},
                            {"cpu_exact", "cpu", true, std::nullopt},
                            {"cpu", "cpu", false, std::nullopt},
                            {"cpu_q8", "cpu", false, DType::kQ8_0}};

std::vector<MethodEntry> SplitEntries() {
  std::vector<MethodEntry> entries = LawEntries();
  const auto active = [&](std::string_view name) { return ActiveOf(entries, name); };
  const std::vector<MethodEntry> more = {
      {.name = "none", .active = "none"},
      {.name = "sliminfer_ftp", .active = active("sliminfer") + "+" + active("ftp")},
      {.name = "sdtp_snapkv", .active = active("sdtp") + "+" + active("snapkv")},
      {.name = "gemfilter_lazyllm", .active = active("gemfilter") + "+" + active("lazyllm")},
      {.name = "lazyllm_question",
       .active = "lazyllm:layers=2/4,keep=0.5,queries=4,ask=question,sum=2,whole=sentence,min=0"},
      {.name = "coppice_mass",
       .active = "coppice:layers=2/4,keep=1/0.4,mass=0.6,queries=8/1,widen=2,floor=0,last=8,min=0"},
      {.name = "sliminfer_minference_ftp",
       .active = active("sliminfer") + "+minference:pattern=block_sparse,blocks=4,min=0+" + active("ftp"),
       .tokens = 500},
      {.name = "ftp_mean", .active = "ftp:eta=0.5,dense=2,first=10,last=8,fill=mean,min=0", .split = false}};
  entries.insert(entries.end(), more.begin(), more.end());
  return entries;
}

struct SplitCase {
  LawArm arm;
  MethodEntry entry;
};

std::vector<SplitCase> SplitCases() {
  std::vector<SplitCase> cases;
  for (const LawArm& arm : kArms) {
    for (const MethodEntry& entry : SplitEntries()) cases.push_back({arm, entry});
  }
  return cases;
}

class SplitLaws : public testing::TestWithParam<SplitCase> {
 protected:
  void SetUp() override {
    if (!Backend1()) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
  }
  std::unique_ptr<Backend> Backend1() const {
    const LawArm& arm = GetParam().arm;
    return MakeBackendOrSkip(arm.backend, {.threads = 1, .exact = arm.exact, .cache_type = arm.cache});
  }
  // Of process 0; `computed` gets the rows of all.
  RunResult Together(int processes, const RunOptions& options,
                     std::vector<ComputedRows>* computed = nullptr) {
    RunResult leader;
    std::mutex mutex;
    ThreadGroup(processes).Run([&](Comm& comm) {
      const std::unique_ptr<Backend> backend = Backend1();
      RunOptions own = options;
      own.comm = &comm;
      if (comm.rank() != 0) own.trace = nullptr;
      RunResult run = RunTiny(model_, prompt_, *backend, own);
      const std::lock_guard lock(mutex);
      if (computed != nullptr) computed->push_back(run.computed);
      if (comm.leads()) {
        leader = std::move(run);
        return;
      }
      // These hold only what prefill needs.
      EXPECT_EQ(run.state.kv_bytes(), 0);
      for (const LayerState& layer : run.state.layers) EXPECT_TRUE(!layer.units && !layer.pages);
    });
    return leader;
  }

  // Rows of Q8_0 need heads of whole blocks.
  TinyModel llama_ = GetParam().arm.cache == DType::kQ8_0 ? MakeTiny({.head_dim = 32}) : MakeTiny({});
  Transformer model_ = llama_.Make();
  std::vector<int32_t> prompt_ = RandomPrompt(GetParam().entry.tokens, 50);
};

void ExpectSameTrace(Trace a, const Trace& b) {
  for (TraceLayer& layer : a.prefill) layer.computed.clear();
  EXPECT_EQ(a, b);
}

void ExpectSameLedger(const Ledger& ledger, const Ledger& alone) {
  EXPECT_EQ(ledger.token_layers(), alone.token_layers());
  EXPECT_EQ(ledger.flops(), alone.flops());
  EXPECT_EQ(ledger.flops_dense(), alone.flops_dense());
  EXPECT_EQ(ledger.peak_held_bytes, alone.peak_held_bytes);
}

// P1
TEST_P(SplitLaws, TheNumberOfProcessesChangesNothing) {
  RunOptions options;
  options.spec = GetParam().entry.active;
  options.question = {{20, 30}};
  options.decode = kSteps;
  const std::unique_ptr<Backend> backend = Backend1();
  const PruneChoice choice =
      MakePolicy(options.spec, TinyContext(model_, prompt_, *backend, options.question), options.protection);
  const std::string why = SplitRefusal(*choice.policy, model_.config().shape.layer_count());
  ASSERT_EQ(why.empty(), GetParam().entry.split) << why;
  if (!why.empty()) return;
  TraceRecorder trace;
  options.trace = &trace;
  const RunResult alone = RunTiny(model_, prompt_, *backend, options);
  const Trace one = trace.Take();
  // Tiles that hold many pieces, pieces of a row or two, and more processes than rows in late layers.
  for (const auto& [processes, tile_rows] : {std::pair(2, 64), {3, 7}, {4, 64}}) {
    SCOPED_TRACE(std::to_string(processes) + " processes, tiles of " + std::to_string(tile_rows));
    options.tile_rows = tile_rows;
    std::vector<ComputedRows> computed;
    const RunResult run = Together(processes, options, &computed);
    ExpectSameRun(run, alone);
    ExpectSameLedger(run.state.ledger, alone.state.ledger);
    ExpectSameTrace(trace.Take(), one);
    ComputedRows sum;
    for (const ComputedRows& rows : computed) {
      sum.kv += rows.kv;
      sum.query += rows.query;
      sum.ffn += rows.ffn;
    }
    ComputedRows ledger;
    for (const LayerCounts& layer : alone.state.ledger.layers()) {
      ledger.kv += layer.kv_rows;
      ledger.query += layer.query_rows;
      ledger.ffn += layer.ffn_rows;
    }
    if (GetParam().entry.name.starts_with("gemfilter")) continue;  // whose first pass counts, too
    EXPECT_EQ(sum.kv, ledger.kv);
    EXPECT_EQ(sum.query, ledger.query);
    EXPECT_EQ(sum.ffn, ledger.ffn);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SplitLaws, testing::ValuesIn(SplitCases()), [](const auto& param_info) {
  return std::string(param_info.param.arm.name) + "_" + param_info.param.entry.name;
});

struct SplitModel {
  TinyModel tiny = MakeTiny({});
  Transformer model = tiny.Make();
  std::vector<int32_t> prompt = RandomPrompt(200, 50);
};

// P2
TEST(Split, APromptOfFewerRowsThanProcessesIsTheSame) {
  const SplitModel m;
  const auto backend = MakeBackend("reference", {});
  for (const size_t tokens : {1u, 2u, 3u, 5u}) {
    const std::vector<int32_t> prompt(m.prompt.begin(),
                                      m.prompt.begin() + static_cast<std::ptrdiff_t>(tokens));
    const RunResult alone = RunTiny(m.model, prompt, *backend, {.decode = 2});
    ThreadGroup(4).Run([&](Comm& comm) {
      const auto own = MakeBackend("reference", {});
      const RunResult run = RunTiny(m.model, prompt, *own, {.decode = 2, .comm = &comm});
      if (comm.rank() == 0) ExpectSameLogits(run, alone);
    });
  }
}

// A process runs the experts for its own rows, which are not next to each other.
TEST(Split, AMixtureOfExpertsIsTheSame) {
  const TinyModel tiny = MakeTiny({.architecture = "qwen3moe"});
  const Transformer model = tiny.Make();
  const auto backend = MakeBackend("reference", {});
  for (const int64_t tokens : {2, 5, 200}) {
    const std::vector<int32_t> prompt = RandomPrompt(tokens, 50);
    for (const char* spec : {"none", "ftp:eta=0.5,dense=2,first=10,last=8,min=0"}) {
      const RunResult alone = RunTiny(model, prompt, *backend, {.spec = spec, .decode = 2});
      ThreadGroup(3).Run([&](Comm& comm) {
        const auto own = MakeBackend("reference", {});
        const RunResult run =
            RunTiny(model, prompt, *own, {.spec = spec, .decode = 2, .tile_rows = 7, .comm = &comm});
        if (comm.rank() == 0) ExpectSameLogits(run, alone);
      });
    }
  }
}

// Drops other rows in one process than in the others, or attends other keys.
class Disloyal final : public TokenPolicy {
 public:
  Disloyal(bool by_pattern, bool differs) : by_pattern_(by_pattern), differs_(differs) {}
  TokenSet BeforeLayer(const Observation& seen, Backend&) override {
    if (by_pattern_ || seen.layer != 3) return TokenSet::All(seen.rows());
    return TokenSet::Range(differs_ ? 1 : 0, 100, seen.rows()).UnionLast(1);
  }
  bool ChoosesPattern(Phase phase, int layer) const override {
    return by_pattern_ && phase == Phase::kPrefill && layer == 2;
  }
  SparsePattern Pattern(const AttentionScene& scene, Backend&) override {
    SparsePattern pattern{.query_block = 16, .key_block = 16, .heads = {}};
    pattern.heads.resize(static_cast<size_t>(scene.in.shape.heads));
    for (SparsePattern::Head& head : pattern.heads) {
      for (int32_t b = 0; b * 16 < scene.in.queries.rows; ++b) head.key_blocks.push_back({b});
    }
    if (differs_) pattern.heads.back().columns = {5};
    return pattern;
  }

 private:
  bool by_pattern_;
  bool differs_;
};

// P3
TEST(Split, DifferentChoicesEndTheRunEverywhere) {
  const SplitModel m;
  for (const bool by_pattern : {false, true}) {
    std::atomic<int> ended = 0;
    ThreadGroup(3).Run([&](Comm& comm) {
      const auto own = MakeBackend("reference", {});
      Disloyal policy(by_pattern, comm.rank() == 1);
      RunOptions options;
      options.policy = &policy;
      options.comm = &comm;
      try {
        RunTiny(m.model, m.prompt, *own, options);
      } catch (const Error& error) {
        EXPECT_THAT(error.what(),
                    testing::HasSubstr(by_pattern ? "chose different tokens (pattern, layer 2)"
                                                  : "chose different tokens (before, layer 3)"));
        ++ended;
      }
    });
    EXPECT_EQ(ended, 3);
  }
}

// P4
TEST(Split, ACancelledRunEndsEverywhereAndTheNextOneIsTheSame) {
  const SplitModel m;
  const auto backend = MakeBackend("reference", {});
  const RunResult alone = RunTiny(m.model, m.prompt, *backend, {});
  std::atomic<int> cancelled = 0;
  ThreadGroup(3).Run([&](Comm& comm) {
    const auto own = MakeBackend("reference", {});
    std::atomic<bool> flag = false;
    RunControl control;
    if (comm.rank() == 0) {
      control.cancelled = &flag;
      control.progress = [&](double layers) { flag = layers > 2.3; };
      // It may take long or throw, and the others wait for this process's rows.
      control.pause = [] { ADD_FAILURE() << "a split prefill pauses"; };
    }
    RunOptions options;
    options.control = control;
    options.comm = &comm;
    try {
      RunTiny(m.model, m.prompt, *own, options);
    } catch (const Cancelled&) {
      ++cancelled;
    }
    const RunResult run = RunTiny(m.model, m.prompt, *own, {.comm = &comm});
    if (comm.rank() == 0) ExpectSameLogits(run, alone);
  });
  EXPECT_EQ(cancelled, 3);
}

}  // namespace
}  // namespace coppice::split_laws_test
