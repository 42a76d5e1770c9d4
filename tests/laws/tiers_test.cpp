// Where keys, values and parked states lie while tokens are generated: SlimInfer's hot and cold tier, and
// LazyLLM's Aux cache (docs/laws.md).
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/timed_backend.h"
#include "laws_support.h"
#include "policies/methods/sliminfer.h"
#include "shape_edit.h"

namespace coppice::tiers_test {
namespace {

constexpr int64_t kTokens = 200;
constexpr int64_t kSteps = 10;
constexpr int kBlock = 16;  // 12 blocks, and a tail of 8 tokens

// Decode keeps fewer blocks than prefill and takes every new choice, so blocks move in every step.
const std::string kSlim =
    "sliminfer:layers=2/4,keep=112/64,decode_keep=64/"
    "48,block=16,last=1,unit=8,window=1,gamma=2,revive_cap=1,min=0";
const std::string kLazy = "lazyllm:layers=2/4,keep=0.4,min=0";

class Tiers : public testing::TestWithParam<Arithmetic> {
 protected:
  void SetUp() override {
    backend_ = MakeBackendOrSkip(GetParam().backend, {.threads = 2, .exact = GetParam().exact});
    if (!backend_) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
  }
  RunResult Run(const RunOptions& options) { return RunTiny(llama_.Make(), prompt_, *backend_, options); }
  int64_t ElementBytes() const { return BytesOf(backend_->cache_dtype(), 1); }
  // Of a key and a value.
  int64_t RowBytes(int kv_heads = 2) const { return 2 * kv_heads * 8 * ElementBytes(); }

  std::unique_ptr<Backend> backend_;
  TinyModel llama_ = MakeTiny({});
  std::vector<int32_t> prompt_ = RandomPrompt(kTokens, 50);
};

// Rows of the prompt among `positions`.
int64_t PromptRows(const Positions& positions) {
  return std::lower_bound(positions.begin(), positions.end(), kTokens) - positions.begin();
}

// T-SL3, T-SL4, T-SL5: after every step a layer's hot cache is what the step attended there, the generated
// tokens among it; the rest of what was computed is cold.
TEST_P(Tiers, HotBytesFollowWhatIsAttended) {
  for (int64_t steps = 1; steps <= kSteps; ++steps) {
    SCOPED_TRACE(steps);
    const RunResult run = Run({.spec = kSlim, .decode = steps});
    int64_t hot = 0;
    int64_t computed = 0;
    for (size_t l = 0; l < 6; ++l) {
      SCOPED_TRACE(l);
      const Positions& attended = run.attended.back()[l];
      EXPECT_EQ(PositionsOf(run.state.layers[l].cache), attended);
      for (int32_t p = 0; p < steps; ++p) EXPECT_TRUE(Has(attended, static_cast<int32_t>(kTokens) + p));
      const int64_t blocks = l < 4 ? 4 : 3;
      // The tail is a block of eight, and always there.
      EXPECT_EQ(PromptRows(attended), l < 2 ? kTokens : (blocks - 1) * kBlock + 8);
      hot += (l < 2 ? kTokens : (blocks - 1) * kBlock + 8) + steps;
      for (const int32_t depth : run.state.depth) computed += depth > static_cast<int32_t>(l) ? 1 : 0;
    }
    EXPECT_EQ(run.state.kv_bytes(), hot * RowBytes());
    // The most was held when prefill had passed, with 112 and 64 tokens less what the tail lacks.
    EXPECT_EQ(run.state.ledger.peak_kv_bytes, 2 * (kTokens + 104 + 56) * RowBytes());
    EXPECT_EQ(run.state.cold_bytes(), (computed - hot) * RowBytes());
    EXPECT_GT(run.state.cold_bytes(), 0);
    EXPECT_EQ(run.state.aux.bytes(), run.state.aux.tokens() * 64 * ElementBytes());
  }
}

// T-SL6: a budget that covers the prompt is dense bit for bit, through the code that decides in every step.
TEST_P(Tiers, ABudgetOfEverythingIsDense) {
  SlimInferConfig config{.layers = {2, 4},
                         .keep = {kTokens, kTokens},
                         .decode_keep = {},
                         .block = kBlock,
                         .gamma = 2,
                         .revive = true};
  SlimInferPolicy policy(config);
  const RunResult run = Run({.policy = &policy, .decode = 20});
  ExpectSameLogits(run, Run({.decode = 20}));
  EXPECT_EQ(run.state.ledger.swaps, 0);
  EXPECT_EQ(run.state.ledger.revived, 0);
  EXPECT_EQ(run.state.cold, nullptr);
  EXPECT_EQ(run.state.aux.tokens(), 0);
}

// And so is one for generating alone: with a share of 1 everything is attended, the short tail too, once all
// have come back.
TEST_P(Tiers, EverythingComesBackWhereTheBudgetHasRoom) {
  const RunResult run = Run(
      {.spec = "sliminfer:layers=2/4,keep=112/64,decode_keep=1,block=16,last=1,gamma=2,revive_cap=100,min=0",
       .decode = 3});
  for (size_t l = 0; l < 6; ++l) EXPECT_EQ(run.attended.back()[l].size(), kTokens + 3u) << "layer " << l;
  EXPECT_EQ(run.state.cold, nullptr);
}

// The cap bounds what a step computes anew, and is used up where more is wanted.
TEST_P(Tiers, NoMoreBlocksComeBackThanTheCap) {
  for (const size_t cap : {0, 1, 2}) {
    SCOPED_TRACE(cap);
    const RunResult run = Run({.spec = "sliminfer:layers=2,keep=112,decode_keep=112,block=16,last=1,window=1,"
                                       "gamma=2,min=0,revive_cap=" +
                                       std::to_string(cap),
                               .decode = kSteps});
    size_t most = 0;
    for (const auto& step : run.revived) {
      Positions blocks;
      for (const auto& [layer, position] : step) {
        if (blocks.empty() || blocks.back() != position / kBlock) blocks.push_back(position / kBlock);
      }
      most = std::max(most, blocks.size());
    }
    EXPECT_EQ(most, cap);
  }
}

// Tokens that come back use packed weights, and packing a weight takes longer than its product with a few
// rows. So the steps of an answer pack a weight once, not in each step.
TEST_P(Tiers, StepsPackAWeightOnce) {
  const Transformer model = llama_.Make();
  for (const std::string& spec : {kSlim, kLazy}) {
    SCOPED_TRACE(spec);
    int64_t steps_with_returns = 0;
    const auto packs = [&](int64_t steps) {
      TimedBackend timed(MakeBackend(GetParam().backend, {.threads = 2, .exact = GetParam().exact}));
      const RunResult run = RunTiny(model, prompt_, timed, {.spec = spec, .decode = steps});
      steps_with_returns =
          std::count_if(run.revived.begin(), run.revived.end(), [](const auto& r) { return !r.empty(); });
      return timed.times().calls[static_cast<size_t>(OpKind::kPack)];
    };
    const int64_t of_prefill = packs(0);
    constexpr int64_t kProducts = 5;
    EXPECT_LE(packs(kSteps) - of_prefill, kProducts * 6);
    EXPECT_GE(steps_with_returns, 5);
  }
}

// T-SL9: what was in the cold tier is what prefill computed, byte for byte; and nothing is written twice.
TEST_P(Tiers, BlocksComeBackAsTheyLeft) {
  const std::string spec = kSlim + ",revive=none";
  const RunResult before = Run({.spec = spec});
  RunResult after = Run({.spec = spec, .decode = 30});
  SequenceState& state = after.state;
  ASSERT_NE(state.cold, nullptr);
  EXPECT_GT(state.cold->blocks_loaded(), 10);
  EXPECT_GT(state.cold->blocks_loaded(), state.cold->blocks_written());
  EXPECT_LE(state.cold->blocks_written(), 2 * 7 + 2 * 4);  // 7 blocks in two layers, 4 in two others
  std::vector<int32_t> all(13);
  std::iota(all.begin(), all.end(), 0);
  for (int l = 0; l < 6; ++l) {
    SCOPED_TRACE(l);
    LayerCache& cache = state.layers[static_cast<size_t>(l)].cache;
    const LayerCache& first = before.state.layers[static_cast<size_t>(l)].cache;
    state.cold->Load(l, all, cache);
    ASSERT_EQ(PromptRows(PositionsOf(cache)), first.rows());
    for (const int32_t p : first.positions()) ASSERT_EQ(CachedBytes(cache, p), CachedBytes(first, p)) << p;
  }
  EXPECT_EQ(state.cold_bytes(), 0);
}

// The same of keys that are computed while generating: once there, they never change (T-LZ1).
TEST_P(Tiers, RevivedKeysNeverChange) {
  std::vector<int32_t> all(13);
  std::iota(all.begin(), all.end(), 0);
  for (const std::string& spec : {kSlim, kLazy}) {
    RunResult early = Run({.spec = spec, .decode = 4});
    RunResult late = Run({.spec = spec, .decode = 16});
    EXPECT_GT(early.state.ledger.revived, 0);
    EXPECT_GT(late.state.ledger.revived, early.state.ledger.revived);
    for (int l = 0; l < 6; ++l) {
      for (RunResult* run : {&early, &late}) {
        if (run->state.cold) run->state.cold->Load(l, all, run->state.layers[static_cast<size_t>(l)].cache);
      }
      ExpectRowsOf(early.state.layers[static_cast<size_t>(l)].cache,
                   late.state.layers[static_cast<size_t>(l)].cache);
    }
  }
}

// T-SL10: how the file is read and written changes nothing but the time. Nor does a device's own store.
TEST_P(Tiers, AsynchronousIsSynchronous) {
  const RunResult sync = Run({.spec = kSlim, .decode = 24, .cold = {.folder = {}, .io = ColdIo::kSync}});
  ASSERT_NE(sync.state.cold, nullptr);
  EXPECT_EQ(sync.state.cold->kind(), "sync");
  for (const ColdIo io : {ColdIo::kThreads, ColdIo::kUring, ColdIo::kAuto}) {
    SCOPED_TRACE(static_cast<int>(io));
    std::optional<RunResult> run;
    const std::string error =
        ErrorOf([&] { run = Run({.spec = kSlim, .decode = 24, .cold = {.folder = {}, .io = io}}); });
    if (io == ColdIo::kUring && error.find("does not allow io_uring") != std::string::npos) continue;
    ASSERT_EQ(error, "no error");
    const bool own_store = backend_->memory() != nullptr && io == ColdIo::kAuto;
    EXPECT_EQ(run->state.cold->kind() == "pinned", own_store);
    ExpectSameLogits(*run, sync);
    EXPECT_EQ(run->kept, sync.kept);
    EXPECT_EQ(run->attended, sync.attended);
    EXPECT_EQ(run->revived, sync.revived);
    EXPECT_EQ(run->state.depth, sync.state.depth);
    EXPECT_EQ(run->state.kv_bytes(), sync.state.kv_bytes());
    EXPECT_EQ(run->state.cold_bytes(), sync.state.cold_bytes());
    EXPECT_EQ(run->state.cold->blocks_written(), sync.state.cold->blocks_written());
    EXPECT_EQ(run->state.cold->blocks_loaded(), sync.state.cold->blocks_loaded());
    const Ledger& a = run->state.ledger;
    const Ledger& b = sync.state.ledger;
    EXPECT_EQ(a.swaps, b.swaps);
    EXPECT_EQ(a.revived, b.revived);
    EXPECT_EQ(a.token_layers(), b.token_layers());
    EXPECT_EQ(a.flops(), b.flops());
    EXPECT_EQ(a.peak_kv_bytes, b.peak_kv_bytes);
    EXPECT_EQ(a.peak_held_bytes, b.peak_held_bytes);
  }
}

// Protected tokens stay hot in every layer, in a block that is kept for them or beside one that left.
TEST_P(Tiers, ProtectedTokensStayHot) {
  const RunResult run = Run({.spec = kSlim, .protection = {.first = 37, .last = 21}, .decode = kSteps});
  int64_t computed = 0;
  for (size_t l = 0; l < 6; ++l) {
    const Positions hot = PositionsOf(run.state.layers[l].cache);
    for (int32_t p = 0; p < kTokens + kSteps; ++p) {
      EXPECT_TRUE((p >= 37 && p < kTokens - 21) || Has(hot, p)) << "layer " << l << " position " << p;
      EXPECT_TRUE((p >= 37 && p < kTokens - 21) || Has(run.attended.back()[l], p));
    }
    EXPECT_TRUE(IsSubset(run.attended.back()[l], hot));
  }
  for (const int32_t depth : run.state.depth) computed += depth;
  EXPECT_EQ(run.state.ledger.token_layers(), computed);
  EXPECT_EQ(run.state.kv_bytes() + run.state.cold_bytes(), computed * RowBytes());
  EXPECT_GT(run.state.cold_bytes(), 0);
}

// T-LZ6, T-LZ7, and that generated tokens stay: what a layer attends is part of what the one below does.
TEST_P(Tiers, LazyLlmNestsWithinAStep) {
  const RunResult run = Run({.spec = kLazy, .decode = kSteps});
  for (size_t step = 0; step < run.attended.size(); ++step) {
    for (size_t l = 0; l < 6; ++l) {
      const Positions& attended = run.attended[step][l];
      EXPECT_TRUE(l == 0 || IsSubset(attended, run.attended[step][l - 1])) << "step " << step;
      for (int32_t p = kTokens; p <= kTokens + static_cast<int32_t>(step); ++p) EXPECT_TRUE(Has(attended, p));
      EXPECT_EQ(PromptRows(attended), l < 2 ? 200 : l < 4 ? 80 : 32);
    }
    for (const auto& [layer, position] : run.revived[step]) EXPECT_TRUE(layer == 2 || layer == 4);
  }
}

// T-LZ9: below a single stage, and in it, nothing of the prompt differs from dense, whatever comes back.
TEST_P(Tiers, LazyLlmBelowItsStageIsDense) {
  const RunResult dense = Run({});
  const RunResult run = Run({.spec = "lazyllm:layers=3,keep=0.3,min=0", .decode = 8});
  EXPECT_GT(run.state.ledger.revived, 0);
  for (size_t l = 0; l <= 3; ++l) {
    for (const int32_t p : run.state.layers[l].cache.positions()) {
      if (p >= kTokens) break;
      const std::string mine = CachedBytes(run.state.layers[l].cache, p);
      // What came back was parked in the cache's type: exact in fp32.
      const bool exact = l < 3 || Has(run.kept[3], p) || backend_->cache_dtype() == DType::kF32;
      EXPECT_TRUE(!exact || mine == CachedBytes(dense.state.layers[l].cache, p))
          << "layer " << l << " position " << p;
    }
    EXPECT_GE(run.state.layers[l].cache.rows(), l < 3 ? kTokens + 8 : 60 + 8);
  }
}

// The two readings of who sees whom begin alike, and part where tokens come back.
TEST_P(Tiers, LazyLlmMasks) {
  const RunResult append = Run({.spec = kLazy + ",revive_mask=append", .decode = 8});
  const RunResult causal = Run({.spec = kLazy + ",revive_mask=causal", .decode = 8});
  EXPECT_TRUE(SameBits(append.logits[0], causal.logits[0]));
  EXPECT_EQ(append.state.ledger.revived > 0 && causal.state.ledger.revived > 0, true);
  EXPECT_FALSE(SameBits(append.logits[1], causal.logits[1]));
  ExpectSameLogits(Run({.spec = kLazy, .decode = 8}), append);
}

// Before the last layer, where no other row sees what a returned token computes, the masks agree. Behind a
// sliding window, too: the current token sees the window of its own position.
TEST_P(Tiers, TheCurrentTokenSeesItsOwnWindow) {
  const std::string spec = "lazyllm:layers=5,keep=0.3,strict_memory=0,min=0";
  for (const int window : {0, static_cast<int>(kTokens)}) {
    SCOPED_TRACE(window);
    SetInAll(llama_.config.shape, &LayerShape::window, window);
    const RunResult append = Run({.spec = spec + ",revive_mask=append", .decode = 12});
    const RunResult causal = Run({.spec = spec + ",revive_mask=causal", .decode = 12});
    EXPECT_TRUE(append.active) << append.reason;
    EXPECT_GT(append.state.ledger.revived, 12);
    EXPECT_EQ(append.revived, causal.revived);
    ExpectSameLogits(append, causal);
  }
}

TEST_P(Tiers, AlibiRevivesCausally) {
  const TinyModel bloom = MakeTiny({.architecture = "bloom"});
  const auto run = [&](const std::string& spec) {
    return RunTiny(bloom.Make(), prompt_, *backend_, {.spec = spec, .decode = 8});
  };
  const RunResult fallback = run(kLazy);
  EXPECT_GT(fallback.state.ledger.revived, 0);
  ExpectSameLogits(run(kLazy + ",revive_mask=causal"), fallback);
  EXPECT_NE(ErrorOf([&] { run(kLazy + ",revive_mask=append"); }).find("ALiBi"), std::string::npos);
}

// T-LZ4: with strict_memory what is held never exceeds the dense cache; without, a late stage does.
TEST_P(Tiers, LazyLlmHoldsNoMoreThanDense) {
  for (const int kv_heads : {1, 2, 4, 8}) {
    SCOPED_TRACE(kv_heads);
    const TinyModel tiny = MakeTiny({.kv_heads = kv_heads});
    for (const int64_t steps : {0, 1, 2, 4, 8}) {
      const int64_t dense = 6 * (kTokens + steps) * RowBytes(kv_heads);
      const auto held = [&](const std::string& strict) {
        const RunResult run =
            RunTiny(tiny.Make(), prompt_, *backend_,
                    {.spec = "lazyllm:layers=3/5,keep=0.3,min=0,strict_memory=" + strict, .decode = steps});
        EXPECT_TRUE(run.active) << run.reason;
        EXPECT_GE(run.state.ledger.peak_held_bytes, run.state.kv_bytes() + run.state.aux.bytes());
        EXPECT_GE(run.state.ledger.peak_held_bytes, run.state.ledger.peak_kv_bytes);
        return run.state.kv_bytes() + run.state.aux.bytes();
      };
      EXPECT_LE(held("1"), dense);
      // A parked state takes 64 numbers, the keys and values that it stands for 16 per kv head and layer.
      const int64_t loose = held("0");
      EXPECT_TRUE(kv_heads > 1 || loose > dense) << loose << " of " << dense;
      EXPECT_TRUE(kv_heads < 4 || loose <= dense) << loose << " of " << dense;
    }
  }
}

// Answers with the sets of a worked example by hand: stages before layers 2 and 4.
class WorkedExample final : public TokenPolicy {
 public:
  TokenSet BeforeLayer(const Observation& seen, Backend&) override {
    if (seen.layer == 2) return Rows(seen.positions, {0, 3, 5, 7});
    if (seen.layer == 4) return Rows(seen.positions, {3, 7});
    return TokenSet::All(seen.rows());
  }
  PolicyFacts Facts() const override { return {.parks = true}; }
  DecodePoint AttendsAt(int layer) const override {
    return layer == 2 || layer == 4 ? DecodePoint::kBeforeLayer : DecodePoint::kNone;
  }
  TokenSet Attend(const Observation& seen, const Candidates& candidates, Backend&) override {
    offered.emplace_back(candidates.positions.begin(), candidates.positions.end());
    return Rows(candidates.positions, seen.layer == 2 ? Positions{2, 3, 6, 7, 8} : Positions{3, 6, 8});
  }
  std::vector<Positions> offered;

 private:
  static TokenSet Rows(std::span<const int32_t> positions, const Positions& chosen) {
    std::vector<int32_t> rows;
    for (const int32_t p : chosen) {
      const auto at = std::lower_bound(positions.begin(), positions.end(), p);
      EXPECT_TRUE(at != positions.end() && *at == p) << p << " is not offered";
      rows.push_back(static_cast<int32_t>(at - positions.begin()));
    }
    return TokenSet::Of(std::move(rows), static_cast<int64_t>(positions.size()));
  }
};

TEST_P(Tiers, LazyLlmWorkedExample) {
  prompt_ = RandomPrompt(8, 50);
  WorkedExample in_prefill;
  const RunResult before = Run({.policy = &in_prefill});
  EXPECT_EQ(before.state.depth, (Positions{4, 2, 2, 6, 2, 4, 2, 6}));
  EXPECT_EQ(before.state.ledger.token_layers(), 2 * 8 + 2 * 4 + 2 * 2);
  WorkedExample policy;
  const RunResult after = Run({.policy = &policy, .decode = 1});
  EXPECT_EQ(after.state.depth, (Positions{4, 2, 4, 6, 2, 4, 6, 6, 6}));
  // Everything has keys in layer 1; those of depth 4 or 2 have none where the second stage begins, but 2 and
  // 6 come along, and 0 and 5 wait there.
  EXPECT_EQ(policy.offered, (std::vector<Positions>{{0, 1, 2, 3, 4, 5, 6, 7, 8}, {0, 2, 3, 5, 6, 7, 8}}));
  EXPECT_EQ(after.state.ledger.token_layers() - before.state.ledger.token_layers(), 6 + 6);
  EXPECT_EQ(after.state.ledger.revived, 2);
  Positions parked;
  for (int32_t p = 0; p < 9; ++p) {
    if (after.state.aux.Has(p)) parked.push_back(p);
    EXPECT_FALSE(after.state.aux.FfnOwed(p));
  }
  EXPECT_EQ(parked, (Positions{0, 1, 2, 4, 5}));
  const Positions cached[] = {{0, 1, 2, 3, 4, 5, 6, 7, 8},
                              {0, 1, 2, 3, 4, 5, 6, 7, 8},
                              {0, 2, 3, 5, 6, 7, 8},
                              {0, 2, 3, 5, 6, 7, 8},
                              {3, 6, 7, 8},
                              {3, 6, 7, 8}};
  for (size_t l = 0; l < 6; ++l) EXPECT_EQ(PositionsOf(after.state.layers[l].cache), cached[l]) << l;
}

INSTANTIATE_TEST_SUITE_P(Backends, Tiers, testing::ValuesIn(kArithmetics),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace coppice::tiers_test
