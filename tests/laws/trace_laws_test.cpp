// What a trace and the ledger say of a run is what the run did: over every method of the registry and every
// backend, each step played back from the trace and weighed against caches, policy answers and closed forms.
#include <gtest/gtest.h>

#include <algorithm>

#include "laws_support.h"
#include "laws_table.h"

namespace coppice::trace_laws_test {
namespace {

constexpr int64_t kSteps = 8;
constexpr size_t kLayers = 6;

struct Case {
  Arithmetic arithmetic;
  MethodEntry entry;
  unsigned traits = 0;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const std::vector<MethodEntry> entries = LawEntries();
  for (const Arithmetic& arithmetic : kArithmetics) {
    for (const MethodInfo& method : Methods()) {
      for (const MethodEntry& entry : entries) {
        if (entry.name == method.name) cases.push_back({arithmetic, entry, method.traits});
      }
    }
  }
  return cases;
}

Positions Without(const Positions& set, const Positions& gone) {
  Positions rest;
  std::set_difference(set.begin(), set.end(), gone.begin(), gone.end(), std::back_inserter(rest));
  return rest;
}

Positions With(const Positions& set, const Positions& more) {
  Positions both;
  std::set_union(set.begin(), set.end(), more.begin(), more.end(), std::back_inserter(both));
  return both;
}

Positions EventOf(const TraceStep& step, size_t layer, TraceEventKind kind) {
  Positions all;
  for (const TraceEvent& event : step.events) {
    if (event.layer == static_cast<int>(layer) && event.kind == kind) all = With(all, event.positions);
  }
  return all;
}

class TraceLaws : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Arithmetic& of = GetParam().arithmetic;
    backend_ = MakeBackendOrSkip(of.backend, {.threads = 2, .exact = of.exact});
    if (!backend_) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
    run_ = Run(kSteps, &recorder_);
  }
  RunResult Run(int64_t decode, TraceRecorder* trace) {
    return RunTiny(model_, prompt_, *backend_,
                   {.spec = GetParam().entry.active, .decode = decode, .trace = trace});
  }
  bool Is(unsigned traits) const { return (GetParam().traits & traits) != 0; }
  const Trace& trace() { return recorder_.trace(); }
  // Of a key and a value in all kv heads.
  int64_t RowBytes() const { return 2 * 16 * BytesOf(backend_->cache_dtype(), 1); }
  // Of the keys that a step may attend in a layer, those that it reads: Quest four pages of 16 from layer 2
  // on, its own, which is not full, among them.
  int64_t Read(size_t layer, int64_t keys) const {
    return Is(kSparseDecode) && layer >= 2 ? 3 * 16 + (keys - 1) % 16 + 1 : keys;
  }
  // Before which layers a step asks who is attended, or with `after` before whose FFN.
  std::vector<bool> Stages(bool after) const;

  std::unique_ptr<Backend> backend_;
  Transformer model_ = MakeTiny({}).Make();
  std::vector<int32_t> prompt_ = RandomPrompt(GetParam().entry.tokens, 50);
  TraceRecorder recorder_;
  RunResult run_;
};

std::vector<bool> TraceLaws::Stages(bool after) const {
  const PruneChoice choice = MakePolicy(GetParam().entry.active, TinyContext(model_, prompt_, *backend_), {});
  std::vector<bool> stages;
  for (int l = 0; l < static_cast<int>(kLayers); ++l) {
    stages.push_back(choice.policy->AttendsAt(l) ==
                     (after ? DecodePoint::kAfterAttention : DecodePoint::kBeforeLayer));
  }
  return stages;
}

TEST_P(TraceLaws, ATracedRunIsTheSameRun) { ExpectSameLogits(Run(kSteps, nullptr), run_); }

TEST_P(TraceLaws, PrefillIsWhatTheCachesHold) {
  const RunResult before = Run(0, nullptr);
  ASSERT_EQ(trace().layers, static_cast<int>(kLayers));
  ASSERT_EQ(trace().prefill.size(), kLayers);
  EXPECT_EQ(trace().prompt_tokens, GetParam().entry.tokens);
  for (size_t l = 0; l < kLayers; ++l) {
    SCOPED_TRACE(l);
    const TraceLayer& layer = trace().prefill[l];
    const LayerCache& cache = before.state.layers[l].cache;
    Positions held = StoredPositions(before.state, static_cast<int>(l));
    if (Is(kMovesPositions)) {  // the slots of the first rows are told as the tokens that stand there
      const std::vector<int32_t>& sinks = before.state.layers[l].sinks.positions;
      ASSERT_EQ(sinks, (Positions{0, 1, 2, 3}));
      std::copy(sinks.begin(), sinks.end(), held.begin());
    }
    EXPECT_EQ(layer.kept, held);
    EXPECT_EQ(layer.rows_per_head, cache.rows());
    EXPECT_EQ(layer.ffn, before.ffn[l]);
    EXPECT_EQ(layer.density, before.state.ledger.layers()[l].density);
  }
  EXPECT_EQ(trace().prefill_bytes.kv, before.state.kv_bytes());
  EXPECT_EQ(trace().prefill_bytes.aux, before.state.aux.bytes());
  EXPECT_EQ(trace().prefill_bytes.cold, before.state.cold_bytes());
  EXPECT_EQ(trace().kv_bytes_dense, static_cast<int64_t>(kLayers) * GetParam().entry.tokens * RowBytes());
}

// The last step's numbers for all methods: those of eviction by head too.
TEST_P(TraceLaws, TheLastStepIsTheState) {
  ASSERT_EQ(trace().steps.size(), static_cast<size_t>(kSteps));
  const TraceStep& last = trace().steps.back();
  for (size_t l = 0; l < kLayers; ++l) {
    const StepCounts& counts = run_.state.layers[l].step;
    EXPECT_EQ(last.attended[l], Read(l, counts.keys)) << l;
    EXPECT_EQ(last.position, static_cast<int32_t>(run_.state.depth.size()) - 1);
    EXPECT_EQ(static_cast<int64_t>(EventOf(last, l, TraceEventKind::kRevived).size()), counts.kv_rows - 1);
  }
  EXPECT_EQ(last.bytes.kv, run_.state.kv_bytes());
  EXPECT_EQ(last.bytes.aux, run_.state.aux.bytes());
  EXPECT_EQ(last.bytes.cold, run_.state.cold_bytes());
}

// Every event of every step, played back: who has keys, who of them in hot memory, what that takes, and who
// is attended, dropped and revived where.
TEST_P(TraceLaws, EventsPlayedBackGiveTheCaches) {
  if (run_.state.layers[0].cache.ragged()) GTEST_SKIP() << "a list per head has no events";
  std::vector<Positions> stored, hot;
  for (const TraceLayer& layer : trace().prefill) stored.push_back(layer.kept);
  hot = stored;
  for (size_t s = 0; s < trace().steps.size(); ++s) {
    SCOPED_TRACE(s);
    const TraceStep& step = trace().steps[s];
    const Positions own = {step.position};
    int64_t in_hot = 0;
    int64_t in_all = 0;
    std::vector<int64_t> depth(static_cast<size_t>(step.position) + 1, 0);
    Positions came;  // in the layer below
    for (size_t l = 0; l < kLayers; ++l) {
      SCOPED_TRACE(l);
      const Positions revived = EventOf(step, l, TraceEventKind::kRevived);
      EXPECT_EQ(With(stored[l], revived).size(), stored[l].size() + revived.size()) << "computed twice";
      const Positions could = With(stored[l], came);
      stored[l] = With(With(stored[l], revived), own);
      hot[l] = With(With(hot[l], revived), own);
      const Positions offloaded = EventOf(step, l, TraceEventKind::kOffloaded);
      const Positions loaded = EventOf(step, l, TraceEventKind::kLoaded);
      EXPECT_TRUE(IsSubset(offloaded, hot[l]));
      EXPECT_TRUE(IsSubset(loaded, Without(stored[l], hot[l])));
      hot[l] = With(Without(hot[l], offloaded), loaded);
      if (!Is(kEvicts)) {
        const Positions& attended = run_.attended[s][l];
        EXPECT_EQ(step.attended[l], Read(l, static_cast<int64_t>(attended.size())));
        EXPECT_TRUE(IsSubset(attended, hot[l]));
        const Positions below = l == 0 ? Positions{} : run_.attended[s][l - 1];
        Positions dropped;  // attended below, and there to be attended here
        for (const int32_t p : Without(below, attended)) {
          if (Has(could, p)) dropped.push_back(p);
        }
        EXPECT_EQ(EventOf(step, l, TraceEventKind::kDropped), dropped);
      } else {
        EXPECT_EQ(step.attended[l], static_cast<int64_t>(stored[l].size()));
      }
      const Positions evicted = EventOf(step, l, TraceEventKind::kEvicted);
      EXPECT_TRUE(IsSubset(evicted, stored[l]) && (Is(kEvicts) || evicted.empty()));
      stored[l] = Without(stored[l], evicted);
      hot[l] = Without(hot[l], evicted);
      in_hot += static_cast<int64_t>(hot[l].size());
      in_all += static_cast<int64_t>(stored[l].size());
      for (const int32_t p : stored[l]) ++depth[static_cast<size_t>(p)];
      came = revived;
    }
    EXPECT_EQ(step.bytes.kv, in_hot * RowBytes());
    EXPECT_EQ(step.bytes.cold, (in_all - in_hot) * RowBytes());
    const auto waiting = std::count_if(depth.begin(), depth.end(), [](int64_t d) { return d < 6; });
    EXPECT_EQ(step.bytes.aux, Is(kRevives) ? waiting * 64 * BytesOf(backend_->cache_dtype(), 1) : 0);
  }
  for (size_t l = 0; l < kLayers && !Is(kMovesPositions); ++l) {
    EXPECT_EQ(stored[l], StoredPositions(run_.state, static_cast<int>(l)));
    EXPECT_EQ(hot[l], PositionsOf(run_.state.layers[l].cache));
  }
}

// A step costs sum_l (1 + r_l)(a + f) + 4 H c (1 + r_l) |A_l| + head, r_l from the policy's answers:
// a token that came back runs until a later stage drops it, with the FFN that it owes, and in the last layer
// gives keys alone.
TEST_P(TraceLaws, DecodeFlopsAreTheClosedForm) {
  if (Is(kEvicts)) GTEST_SKIP() << "attends before it evicts";
  const ModelShape& shape = model_.config().shape;
  const double d = 64, c = 8, h = 8, g = shape.layer(0).kv_heads, i = 96;
  const std::vector<bool> before = Stages(false);
  const std::vector<bool> after = Stages(true);
  double flops = run_.state.ledger.prefill_flops();
  int64_t token_layers = 0;
  int64_t revived = 0;
  for (const LayerCounts& layer : run_.state.ledger.layers()) token_layers += layer.kv_rows;
  for (size_t s = 0; s < run_.attended.size(); ++s) {
    flops += 2 * d * static_cast<double>(shape.vocab);
    Positions running;  // beside the current token
    const auto choose = [&](size_t from) {
      Positions back;
      for (const auto& [layer, position] : run_.revived[s]) {
        if (layer == static_cast<int>(from)) back.push_back(position);
      }
      revived += static_cast<int64_t>(Without(back, running).size());
      running = With(Without(running, Without(running, run_.attended[s][from])), back);
    };
    for (size_t l = 0; l < kLayers; ++l) {
      if (before[l]) choose(l);
      const bool last = l + 1 == kLayers;
      const auto rows = 1 + static_cast<double>(running.size());
      const double queries = last ? 1 : rows;
      token_layers += 1 + static_cast<int64_t>(running.size());
      if (after[l] && !last) choose(l + 1);
      const double ffn = last ? 1 : 1 + static_cast<double>(running.size());
      const auto keys = static_cast<int64_t>(run_.attended[s][l].size());
      flops += 4 * d * g * c * rows + 4 * d * h * c * queries + 6 * d * i * ffn +
               4 * h * c * ((queries - 1) * static_cast<double>(keys) + static_cast<double>(Read(l, keys)));
    }
  }
  const Ledger& ledger = run_.state.ledger;
  EXPECT_NEAR(ledger.flops() / flops, 1, 1e-12);
  EXPECT_EQ(ledger.token_layers(), token_layers);
  EXPECT_EQ(ledger.revived, revived);
}

// What is held, C6: never more than the dense run's keys and values, and the ledger's peaks are those of all
// moments.
TEST_P(TraceLaws, PeaksAreThoseOfTheSteps) {
  int64_t kv = trace().prefill_bytes.kv;
  int64_t held = kv + trace().prefill_bytes.aux;
  int64_t positions = GetParam().entry.tokens;
  EXPECT_LE(kv, static_cast<int64_t>(kLayers) * positions * RowBytes());
  for (const TraceStep& step : trace().steps) {
    EXPECT_LE(step.bytes.kv, static_cast<int64_t>(kLayers) * ++positions * RowBytes());
    kv = std::max(kv, step.bytes.kv);
    held = std::max(held, step.bytes.kv + step.bytes.aux);
  }
  const Ledger& ledger = run_.state.ledger;
  EXPECT_EQ(ledger.peak_kv_bytes, kv);
  EXPECT_EQ(ledger.peak_held_bytes, held);
  double dense = ledger.prefill_flops_dense();
  for (int64_t step = 1; step <= kSteps; ++step)
    dense += DenseDecodeFlops(model_.config().shape, GetParam().entry.tokens + step);
  EXPECT_DOUBLE_EQ(ledger.flops_dense(), dense);
}

INSTANTIATE_TEST_SUITE_P(Methods, TraceLaws, testing::ValuesIn(Cases()), [](const auto& test) {
  return std::string(test.param.arithmetic.name) + "_" + test.param.entry.name;
});

}  // namespace
}  // namespace coppice::trace_laws_test
