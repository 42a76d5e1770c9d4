// Keys and values in Q8_0, in every tier: close to the run that keeps them in bf16, and counted as what they
// take.
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "laws_support.h"

namespace coppice::cache_type_test {
namespace {

constexpr int64_t kTokens = 200;
constexpr int64_t kSteps = 10;

// Heads of a whole block.
TinyModel MakeWide(int kv_heads = 2) { return MakeTiny({.head_dim = 32, .kv_heads = kv_heads}); }

class Q8Cache : public testing::Test {
 protected:
  void SetUp() override {
    q8_ = MakeBackendOrSkip("cpu", {.threads = 2, .cache_type = DType::kQ8_0});
    bf16_ = MakeBackendOrSkip("cpu", {.threads = 2, .cache_type = DType::kBF16});
    if (!q8_) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
  }
  RunResult Run(Backend& be, const RunOptions& options) {
    return RunTiny(wide_.Make(), prompt_, be, options);
  }

  // Root mean square of the difference over that of the logits.
  static double Distance(const std::vector<float>& a, const std::vector<float>& b) {
    double off = 0;
    double size = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      off += (a[i] - b[i]) * (a[i] - b[i]);
      size += b[i] * b[i];
    }
    return std::sqrt(off / size);
  }
  void ExpectClose(const std::string& spec) {
    SCOPED_TRACE(spec);
    const RunResult mine = Run(*q8_, {.spec = spec, .decode = kSteps});
    const RunResult other = Run(*bf16_, {.spec = spec, .decode = kSteps});
    for (size_t i = 0; i <= kSteps; ++i) {
      if (i > 0 && mine.generated[i - 1] != other.generated[i - 1]) break;
      EXPECT_LT(Distance(mine.logits[i], other.logits[i]), 0.03) << i;
      EXPECT_FALSE(SameBits(mine.logits[i], other.logits[i])) << i;
    }
    int64_t rows = 0;
    for (const LayerState& layer : mine.state.layers) {
      const LayerCache& cache = layer.cache;
      EXPECT_EQ(cache.dtype(), DType::kQ8_0);
      rows += cache.rows();
    }
    EXPECT_EQ(mine.state.kv_bytes(), rows * kRowBytes);
    EXPECT_EQ(other.state.kv_bytes(), rows * 2 * 2 * 32 * 2);
    EXPECT_LT(mine.state.ledger.peak_kv_bytes, other.state.ledger.peak_kv_bytes * 34 / 64 + 1);
  }
  static constexpr int64_t kRowBytes = 2 * 2 * 34;  // key and value, two heads: 32 codes and a scale

  std::unique_ptr<Backend> q8_, bf16_;
  TinyModel wide_ = MakeWide();
  std::vector<int32_t> prompt_ = RandomPrompt(kTokens, 50);
};

TEST_F(Q8Cache, DenseIsCloseToBf16) { ExpectClose("none"); }

// T-LZ4 in bytes. A parked state takes 128 bytes, keys and values of one layer 128 in bf16, but 68 in Q8_0:
// there it pays before the last two layers only.
TEST_F(Q8Cache, StrictMemoryCountsBytes) {
  wide_ = MakeWide(1);
  const auto share_of_dense = [&](Backend& be, const std::string& strict, int64_t steps) {
    const RunResult run =
        Run(be, {.spec = "lazyllm:layers=5,keep=0.3,min=0,strict_memory=" + strict, .decode = steps});
    EXPECT_TRUE(run.active) << run.reason;
    EXPECT_GT(run.state.aux.tokens(), 0);
    return static_cast<double>(run.state.kv_bytes() + run.state.aux.bytes()) /
           static_cast<double>(Run(be, {.decode = steps}).state.kv_bytes());
  };
  for (const int64_t steps : {0, 1, 4, 8}) {
    EXPECT_LE(share_of_dense(*q8_, "1", steps), 1) << steps;
    EXPECT_LE(share_of_dense(*bf16_, "1", steps), 1) << steps;
    EXPECT_GT(share_of_dense(*q8_, "0", steps), 1) << steps;
  }
}

// Rows leave by position alone, so both caches hold the same; its sinks' keys are rotated and quantised
// again.
TEST_F(Q8Cache, StreamingLlmMovesKeys) { ExpectClose("streamingllm:sink=4,recent=60,min=0"); }

// The cold tier gives back what it took, byte for byte.
TEST_F(Q8Cache, ColdTier) {
  const std::string spec =
      "sliminfer:layers=2/4,keep=112/64,decode_keep=64/"
      "48,block=16,last=1,unit=8,window=1,gamma=2,revive=none,min=0";
  const RunResult before = Run(*q8_, {.spec = spec});
  RunResult after = Run(*q8_, {.spec = spec, .decode = 30});
  SequenceState& state = after.state;
  ASSERT_NE(state.cold, nullptr);
  EXPECT_GT(state.cold->blocks_loaded(), 10);
  int64_t stored = 0;
  for (int l = 0; l < 6; ++l) stored += static_cast<int64_t>(StoredPositions(state, l).size());
  EXPECT_EQ(state.kv_bytes() + state.cold_bytes(), stored * kRowBytes);
  std::vector<int32_t> all(13);
  std::iota(all.begin(), all.end(), 0);
  for (int l = 0; l < 6; ++l) {
    LayerCache& cache = state.layers[static_cast<size_t>(l)].cache;
    state.cold->Load(l, all, cache);
    const LayerCache& first = before.state.layers[static_cast<size_t>(l)].cache;
    for (const int32_t p : first.positions()) ASSERT_EQ(CachedBytes(cache, p), CachedBytes(first, p)) << p;
  }
  EXPECT_EQ(state.cold_bytes(), 0);
}

// Parked hidden states are bf16; keys of tokens that come back are inserted among the others.
TEST_F(Q8Cache, AuxTier) {
  const RunResult run = Run(*q8_, {.spec = "lazyllm:layers=2/4,keep=0.4,min=0", .decode = kSteps});
  EXPECT_GT(run.state.ledger.revived, 0);
  EXPECT_GT(run.state.aux.tokens(), 0);
  EXPECT_EQ(run.state.aux.bytes(), run.state.aux.tokens() * 64 * 2);
  int64_t computed = 0;
  for (const int32_t depth : run.state.depth) computed += depth;
  EXPECT_EQ(run.state.kv_bytes() + run.state.cold_bytes(), computed * kRowBytes);
}

// Each kv head keeps rows of its own, and pages are chosen by bounds of the keys.
TEST_F(Q8Cache, EvictionAndPages) {
  for (const std::string spec :
       {"snapkv:cap=64,window=8,min=0", "h2o:heavy=0.2,recent=0.2,min=0", "quest:budget=64,dense=2,min=0"}) {
    SCOPED_TRACE(spec);
    const RunResult run = Run(*q8_, {.spec = spec, .decode = kSteps});
    EXPECT_TRUE(run.active) << run.reason;
    int64_t rows = 0;
    for (const LayerState& layer : run.state.layers) rows += layer.cache.rows();
    EXPECT_EQ(run.state.kv_bytes(), rows * kRowBytes);
    for (const float v : run.logits.back()) ASSERT_TRUE(std::isfinite(v));
  }
}

TEST_F(Q8Cache, HeadsMustBeWholeBlocks) {
  const TinyModel narrow = MakeTiny({});
  try {
    RunTiny(narrow.Make(), prompt_, *q8_, {});
    FAIL() << "heads of 8 were kept in blocks of 32";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("blocks have 32 values"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace coppice::cache_type_test
