// Laws of one method or of a pair of them, on every backend (docs/laws.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <numeric>

#include "formats/quants.h"
#include "laws_support.h"
#include "shape_edit.h"

namespace coppice::method_laws_test {
namespace {

constexpr int64_t kTokens = 200;

class MethodLaws : public testing::TestWithParam<Arithmetic> {
 protected:
  void SetUp() override {
    backend_ = MakeBackendOrSkip(GetParam().backend, {.threads = 2, .exact = GetParam().exact});
    if (!backend_) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
  }
  RunResult Run(const RunOptions& options) { return RunTiny(llama_.Make(), prompt_, *backend_, options); }

  std::unique_ptr<Backend> backend_;
  TinyModel llama_ = MakeTiny({});
  std::vector<int32_t> prompt_ = RandomPrompt(kTokens, 50);
};

Positions AllPositions() {
  Positions all(kTokens);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// A model's tensors, with its keys in Q4_0 and its values in Q8_0.
class KeysAndValuesOfTwoTypes final : public TensorStore {
 public:
  explicit KeysAndValuesOfTwoTypes(const TensorStore& store)
      : path_(store.path()), tensors_(store.tensors()) {
    for (StoredTensor& tensor : tensors_) {
      if (tensor.name.ends_with("attn_k.weight")) Quantise(DType::kQ4_0, tensor);
      if (tensor.name.ends_with("attn_v.weight")) Quantise(DType::kQ8_0, tensor);
    }
  }
  const std::string& path() const override { return path_; }
  const std::vector<StoredTensor>& tensors() const override { return tensors_; }
  const StoredTensor* Find(std::string_view name) const override {
    const auto at = std::ranges::find(tensors_, name, &StoredTensor::name);
    return at == tensors_.end() ? nullptr : &*at;
  }

 private:
  void Quantise(DType type, StoredTensor& tensor) {
    Tensor& codes = owned_.emplace_back(type, tensor.view.rows, tensor.view.cols);
    for (int64_t i = 0; i < tensor.view.rows; ++i)
      QuantizeRow(type, tensor.view.Row<float>(i), codes.mutable_view().RowBytes(i));
    tensor.view = codes.view();
  }

  std::string path_;
  std::vector<StoredTensor> tensors_;
  std::list<Tensor> owned_;
};

// Runs the FFN of one layer on the rows that a test names, and everything else on all rows.
class FixedFfn final : public TokenPolicy {
 public:
  FixedFfn(int layer, Positions rows) : layer_(layer), rows_(std::move(rows)) {}
  TokenSet RunFfn(const Observation& seen, Backend&) override {
    const bool acts = seen.phase == Phase::kPrefill && seen.layer == layer_;
    return acts ? TokenSet::Of(rows_, seen.rows()) : TokenSet::All(seen.rows());
  }

 private:
  int layer_;
  Positions rows_;
};

// T-FT1, seen in the next layer's keys: the rows in R are those of a dense FFN, the others those of no FFN at
// all.
TEST_P(MethodLaws, FtpLeavesTheOtherRowsAlone) {
  const RunResult dense = Run({});
  FixedFfn nobody(2, {});
  const RunResult none = Run({.policy = &nobody});
  const RunResult ftp = Run({.spec = "ftp:eta=0.5,dense=2,first=10,last=8,min=0"});
  const Positions& chosen = ftp.ffn[2];
  ASSERT_GT(chosen.size(), 20u);
  ASSERT_LT(chosen.size(), 180u);
  for (int32_t p = 0; p < kTokens; ++p) {
    const RunResult& like = Has(chosen, p) ? dense : none;
    ASSERT_EQ(CachedBytes(ftp.state.layers[3].cache, p), CachedBytes(like.state.layers[3].cache, p))
        << "position " << p;
  }
  EXPECT_NE(CachedBytes(dense.state.layers[3].cache, 50), CachedBytes(none.state.layers[3].cache, 50));
}

// A recorded set, given back as it is, is the same run: nothing but the set makes FTP.
TEST_P(MethodLaws, FtpIsItsSets) {
  const RunResult ftp = Run({.spec = "ftp:eta=0.5,dense=4,first=10,last=8,min=0", .decode = 4});
  FixedFfn same(4, ftp.ffn[4]);  // layer 5 is the last, which computes one row
  ExpectSameLogits(Run({.policy = &same, .decode = 4}), ftp);
}

// T-FT3, T-FT4 and T-FT7: the ends always run, the cache stays whole, and R grows with eta.
TEST_P(MethodLaws, FtpKeepsTheCacheAndTheEnds) {
  Positions before;
  for (const char* eta : {"0.2", "0.5", "0.8", "0.95"}) {
    const RunResult run =
        Run({.spec = std::string("ftp:dense=2,first=10,last=8,min=0,eta=") + eta, .decode = 3});
    for (size_t l = 0; l < 6; ++l) {
      EXPECT_EQ(run.state.layers[l].cache.rows(), kTokens + 3);
      for (int32_t p = 0; p < 10 && l < 5; ++p) EXPECT_TRUE(Has(run.ffn[l], p));
      for (int32_t p = kTokens - 8; p < kTokens && l < 5; ++p) EXPECT_TRUE(Has(run.ffn[l], p));
    }
    EXPECT_EQ(run.ffn[0], AllPositions());
    EXPECT_EQ(run.ffn[1], AllPositions());
    EXPECT_EQ(run.kept[3], AllPositions());
    EXPECT_TRUE(IsSubset(before, run.ffn[2]));  // layer 2: the only one whose scores do not depend on eta
    EXPECT_GT(run.ffn[2].size(), before.size());
    before = run.ffn[2];
  }
}

// A layer that asks which rows attend, and is told all of them, has the bits of one that does not ask. SPTS
// asks in layers 3 to 5 for 100 rows, because it does not know that static pruning left 80.
TEST_P(MethodLaws, SptsThatSkipsNothingChangesNothing) {
  const std::string alone = "static:layer=3,keep=0.4,min=0";
  for (const std::string& architecture : TinyArchitectures(*backend_)) {
    SCOPED_TRACE(architecture);
    const TinyModel tiny = MakeTiny({.architecture = architecture});
    const auto run_of = [&](const std::string& spec) {
      return RunTiny(tiny.Make(), prompt_, *backend_, {.spec = spec, .decode = 4});
    };
    const RunResult wanted = run_of(alone);
    const RunResult run = run_of(alone + "+spts:begin=3,layers=4/5,keep=0.5,drop=0,min=0");
    ExpectSameRun(run, wanted);
  }
}

// T-SL2, T-SL4, T-SL5: blocks 0 and the tail stay, budgets hold, and the cache's bytes are the formula's.
TEST_P(MethodLaws, SlimInferFillsItsBudgets) {
  const RunResult run =
      Run({.spec = "sliminfer:layers=2/4,keep=112/64,block=16,last=1,revive=none,min=0", .decode = 5});
  // 200 tokens are 12 blocks and a tail of 8: 112 is 6 blocks and the tail, 64 is 3 and the tail.
  const int64_t rows[] = {200, 200, 6 * 16 + 8, 6 * 16 + 8, 3 * 16 + 8, 3 * 16 + 8};
  int64_t bytes = 0;
  int64_t formula = 0;
  for (size_t l = 0; l < 6; ++l) {
    const LayerCache& cache = run.state.layers[l].cache;
    EXPECT_EQ(cache.rows(), rows[l] + 5) << "layer " << l;
    for (int32_t p = 0; p < 16; ++p) EXPECT_TRUE(Has(PositionsOf(cache), p));
    for (int32_t p = 192; p < 205; ++p) EXPECT_TRUE(Has(PositionsOf(cache), p));
    bytes += cache.bytes();
    formula += (rows[l] + 5) * 2 * 2 * 8 * (backend_->cache_dtype() == DType::kF32 ? 4 : 2);
  }
  EXPECT_EQ(bytes, formula);
  // The deciding layer's own FFN runs on the kept rows alone.
  EXPECT_EQ(run.state.ledger.layers()[1].kv_rows, 200);
  EXPECT_EQ(run.state.ledger.layers()[1].query_rows, 200);
  EXPECT_EQ(run.state.ledger.layers()[1].ffn_rows, 104);
  EXPECT_EQ(run.state.ledger.layers()[3].ffn_rows, 56);
  // Whole blocks: 16 rows that start at a multiple of 16.
  const Positions kept = PositionsOf(run.state.layers[4].cache);
  for (const int32_t p : kept) {
    for (int32_t q = p / 16 * 16; q < std::min<int32_t>(p / 16 * 16 + 16, 200); ++q)
      EXPECT_TRUE(Has(kept, q));
  }
}

// The first and the last layer that a stage may name.
TEST_P(MethodLaws, StagesAtTheEdges) {
  const RunResult run =
      Run({.spec = "sliminfer:layers=1/5,keep=112/64,block=16,last=1,revive=none,min=0", .decode = 1});
  const int64_t rows[] = {200, 104, 104, 104, 104, 56};
  const int64_t ffn[] = {104, 104, 104, 104, 56, 1};
  for (size_t l = 0; l < 6; ++l) {
    EXPECT_EQ(run.state.ledger.layers()[l].kv_rows, rows[l]) << l;
    EXPECT_EQ(run.state.ledger.layers()[l].ffn_rows, ffn[l]) << l;
  }
}

// A share counts of what is left where one value stands for all stages, and of the prompt where each has its
// own.
TEST_P(MethodLaws, SlimInferShares) {
  const RunResult halves = Run({.spec = "sliminfer:layers=2/4,keep=0.5,block=8,last=1,revive=none,min=0"});
  EXPECT_EQ(halves.state.layers[2].cache.rows(), 96);  // 100 tokens hold 12 whole blocks
  EXPECT_EQ(halves.state.layers[4].cache.rows(), 48);
  const RunResult each = Run({.spec = "sliminfer:layers=2/4,keep=0.5/0.4,block=8,last=1,revive=none,min=0"});
  EXPECT_EQ(each.state.layers[2].cache.rows(), 96);
  EXPECT_EQ(each.state.layers[4].cache.rows(), 80);
}

// SlimInfer decides first, FTP chooses among the survivors; both show in the ledger.
TEST_P(MethodLaws, SlimInferAndFtpCompose) {
  const std::string slim = "sliminfer:layers=2/4,keep=112/64,block=16,last=1,revive=none,min=0";
  const std::string ftp = "ftp:eta=0.5,dense=1,first=10,last=8,min=0";
  const RunResult both = Run({.spec = slim + "+" + ftp});
  const RunResult alone = Run({.spec = slim});
  const RunResult only_ftp = Run({.spec = ftp});
  EXPECT_EQ(both.kept[0], AllPositions());
  EXPECT_EQ(both.kept[1], alone.kept[1]);  // decided before FTP first acts
  for (size_t l = 0; l < 6; ++l) {
    SCOPED_TRACE(l);
    EXPECT_TRUE(IsSubset(both.ffn[l], both.kept[l]));
    EXPECT_TRUE(l == 5 || PositionsOf(both.state.layers[l + 1].cache) == both.kept[l]);
    EXPECT_EQ(both.state.ledger.layers()[l].ffn_rows, static_cast<int64_t>(both.ffn[l].size()));
  }
  EXPECT_LT(both.ffn[1].size(), both.kept[1].size());
  EXPECT_LT(both.state.ledger.prefill_flops(), alone.state.ledger.prefill_flops());
  EXPECT_LT(both.state.ledger.prefill_flops(), only_ftp.state.ledger.prefill_flops());
  // The order of the methods in the spec means nothing.
  ExpectSameLogits(Run({.spec = ftp + "+" + slim}), both);
  // P is a limit on positions, not on rows of what is left.
  for (const int32_t p : both.ffn[4]) EXPECT_TRUE(Has(both.kept[3], p));
  for (int32_t p = 0; p < 10; ++p) EXPECT_TRUE(Has(both.ffn[4], p));
}

// Protected positions survive every stage and run every FFN; the rest is still pruned.
TEST_P(MethodLaws, ProtectionHolds) {
  const Protection protection{.first = 37, .last = 41};
  const RunResult run =
      Run({.spec = "sliminfer:layers=2/"
                   "4,keep=32,block=16,last=1,revive=none,min=0+ftp:eta=0.3,dense=1,first=0,last=1,min=0",
           .protection = protection,
           .decode = 2});
  for (size_t l = 0; l < 6; ++l) {
    const Positions cached = PositionsOf(run.state.layers[l].cache);
    for (int32_t p = 0; p < kTokens + 2; ++p) {
      if (p >= 37 && p < kTokens - 41) continue;
      EXPECT_TRUE(Has(cached, p)) << "layer " << l << " position " << p;
      EXPECT_TRUE(l == 5 || p >= kTokens || Has(run.ffn[l], p)) << "layer " << l << " position " << p;
    }
  }
  EXPECT_LT(run.state.layers[5].cache.rows(), 120);
  // More protection than there are tokens is everything.
  ExpectSameLogits(Run({.spec = "sliminfer:layers=2,keep=32,block=16,last=1,revive=none,min=0",
                        .protection = {.last = 100000}}),
                   Run({}));
}

// A token decoded after a dense prefill gets the logits that a prefill of the longer text gives: bit for bit
// where both run the same loops.
TEST_P(MethodLaws, DecodeIsPrefillOfTheLongerText) {
  for (const std::string& architecture : TinyArchitectures(*backend_)) {
    const TinyModel tiny = MakeTiny({.architecture = architecture});
    const Transformer model = tiny.Make();
    const RunResult run = RunTiny(model, prompt_, *backend_, {.decode = 6});
    std::vector<int32_t> text = prompt_;
    for (size_t step = 0; step < 6; ++step) {
      text.push_back(run.generated[step]);
      const RunResult longer = RunTiny(model, text, *backend_, {});
      if (std::string(GetParam().name) == "reference") {
        EXPECT_TRUE(SameBits(longer.logits[0], run.logits[step + 1])) << architecture << " step " << step;
      }
      const double tolerance = GetParam().exact ? 1e-4 : 3e-2;
      for (size_t i = 0; i < 50; ++i) ASSERT_NEAR(longer.logits[0][i], run.logits[step + 1][i], tolerance);
    }
  }
}

// Forty tokens after a prompt cut to two blocks: all of them stay in every layer.
TEST_P(MethodLaws, GeneratedTokensAreNeverPruned) {
  const RunResult run = Run({.spec = "sliminfer:layers=1,keep=32,block=16,last=1,revive=none,min=0+ftp:eta=0."
                                     "1,dense=0,first=0,last=1,min=0",
                             .decode = 40});
  for (const LayerState& layer : run.state.layers) {
    const LayerCache& cache = layer.cache;
    for (int32_t p = kTokens; p < kTokens + 40; ++p) ASSERT_TRUE(Has(PositionsOf(cache), p));
  }
}

// Beyond a sliding window the last queries score nothing, so both methods stand aside.
TEST_P(MethodLaws, WindowedLayersStandAside) {
  SetInAll(llama_.config.shape, &LayerShape::window, 64);
  const RunResult dense = Run({});
  for (const char* spec : {"ftp:eta=0.5,dense=0,first=0,last=8,min=0",
                           "sliminfer:layers=2,keep=32,block=16,last=1,revive=none,min=0"}) {
    const RunResult run = Run({.spec = spec});
    EXPECT_FALSE(run.active);
    EXPECT_NE(run.reason.find("window of 64"), std::string::npos) << run.reason;
    ExpectSameLogits(run, dense);
  }
}

// SPTS multiplies keys and values apart, a dense run together, where matrices of two types share an
// arithmetic.
TEST_P(MethodLaws, KeysAndValuesOfTwoTypesHaveTheBitsOfADenseRun) {
  ModelConfig config = llama_.config;
  const auto store = std::make_shared<KeysAndValuesOfTwoTypes>(*llama_.store);
  const std::shared_ptr<const Weights> weights = Weights::Load(store, config);
  const Transformer model(config, weights);
  const RunResult dense = RunTiny(model, prompt_, *backend_, {.decode = 4});
  const RunResult run = RunTiny(model, prompt_, *backend_,
                                {.spec = "spts:begin=2,layers=2/3,keep=90/60,drop=40,min=0",
                                 .protection = {.first = kTokens},
                                 .decode = 4});
  EXPECT_TRUE(run.active);
  ExpectSameLogits(run, dense);
}

INSTANTIATE_TEST_SUITE_P(Backends, MethodLaws, testing::ValuesIn(kArithmetics),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace coppice::method_laws_test
