// The laws that every pruning method keeps, over every method of the registry and every backend.
// docs/laws.md lists them. A new method adds a row to laws_table.h and is held to all of them.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "laws_support.h"
#include "laws_table.h"

namespace coppice::laws_test {
namespace {

constexpr int kBlock = 16;

const MethodEntry* EntryOf(std::string_view name) {
  static const std::vector<MethodEntry> entries = LawEntries();
  for (const MethodEntry& entry : entries) {
    if (name == entry.name) return &entry;
  }
  return nullptr;
}

unsigned TraitsOf(std::string_view name) {
  for (const MethodInfo& method : Methods()) {
    if (method.name == name) return method.traits;
  }
  return 0;
}

TEST(LawsTable, EveryMethodIsInIt) {
  for (const MethodInfo& method : Methods()) EXPECT_NE(EntryOf(method.name), nullptr) << method.name;
  EXPECT_EQ(Methods().size(), LawEntries().size());
}

struct LawCase {
  Arithmetic arithmetic;
  std::string method;
};

std::vector<LawCase> LawCases() {
  std::vector<LawCase> cases;
  for (const Arithmetic& a : kArithmetics) {
    for (const MethodInfo& method : Methods()) cases.push_back({a, std::string(method.name)});
  }
  return cases;
}

// Two of the architectures have the other pairing of RoPE.
TinyModel TinyOf(const std::string& architecture) {
  const bool interleaved = architecture != "qwen2" && architecture != "olmo2";
  return MakeTiny({.architecture = architecture, .interleaved = interleaved});
}

class Laws : public testing::TestWithParam<LawCase> {
 protected:
  void SetUp() override {
    backend_ = NewBackend(2);
    if (!backend_) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
    const MethodEntry* entry = EntryOf(GetParam().method);
    ASSERT_NE(entry, nullptr) << GetParam().method << " has no row in tests/laws/laws_table.h";
    entry_ = *entry;
    traits_ = TraitsOf(entry->name);
    tokens_ = entry->tokens;
    prompt_ = RandomPrompt(tokens_, 50);
  }

  static std::unique_ptr<Backend> NewBackend(int threads) {
    const Arithmetic& a = GetParam().arithmetic;
    return MakeBackendOrSkip(a.backend, {.threads = threads, .exact = a.exact});
  }
  RunResult Run(const TinyModel& tiny, const std::vector<int32_t>& prompt, const RunOptions& options) {
    return RunTiny(tiny.Make(), prompt, *backend_, options);
  }
  // The tiny llama over the usual prompt.
  RunResult Run(const RunOptions& options) { return Run(llama_, prompt_, options); }
  // The dense run of the usual prompt, once for all methods.
  const RunResult& Dense(const std::string& architecture, int64_t decode);
  void TearDown() override {
    if (std::string_view(GetParam().arithmetic.name) == "gpu")
      dense_.clear();  // a device's memory goes with it
  }

  // By arithmetic, architecture, prompt tokens and steps.
  static inline std::map<std::tuple<std::string, std::string, int64_t, int64_t>, RunResult> dense_;

  std::unique_ptr<Backend> backend_;
  MethodEntry entry_;
  unsigned traits_ = 0;
  TinyModel llama_ = MakeTiny({});
  int64_t tokens_ = 0;
  std::vector<int32_t> prompt_;
};

const RunResult& Laws::Dense(const std::string& architecture, int64_t decode) {
  const auto [it, is_new] = dense_.try_emplace({GetParam().arithmetic.name, architecture, tokens_, decode});
  if (is_new) it->second = Run(TinyOf(architecture), prompt_, {.decode = decode});
  return it->second;
}

// C1: settings that keep everything give the dense logits, bit for bit, in prefill and 64 decode steps.
TEST_P(Laws, IdentityIsDense) {
  for (const std::string& architecture : TinyArchitectures(*backend_)) {
    SCOPED_TRACE(architecture);
    const TinyModel tiny = TinyOf(architecture);
    const RunResult& dense = Dense(architecture, 64);
    for (const std::string& spec : entry_.identity) {
      SCOPED_TRACE(spec);
      ExpectSameLogits(Run(tiny, prompt_, {.spec = spec, .decode = 64}), dense);
      if (architecture != "llama") break;  // the others change what the policy does, not the layers
    }
    // Protection is a matter of tokens that are dropped, not of keys that a query passes over.
    if ((traits_ & (kSparsePrefill | kSparseDecode)) != 0) continue;
    // Everything protected: the same, through the code that prunes. Generated tokens may be evicted.
    const int64_t steps = (traits_ & kEvicts) != 0 ? 0 : 64;
    const RunResult& whole = Dense(architecture, steps);
    const RunResult shielded =
        Run(tiny, prompt_, {.spec = entry_.active, .protection = {.first = tokens_}, .decode = steps});
    EXPECT_TRUE(shielded.active);
    ExpectSameLogits(shielded, whole);
  }
}

// The other laws would hold of a method that does nothing.
TEST_P(Laws, ActiveSettingsPrune) {
  const RunResult run = Run({.spec = entry_.active, .decode = 4});
  const RunResult dense = Run({.decode = 4});
  EXPECT_TRUE(run.active);
  EXPECT_EQ(run.reason, "");
  bool differs = false;
  for (size_t i = 0; i < run.logits.size(); ++i) differs |= !SameBits(run.logits[i], dense.logits[i]);
  EXPECT_TRUE(differs);
  const Ledger& ledger = run.state.ledger;
  EXPECT_TRUE(
      ledger.prefill_flops() < 0.9 * ledger.prefill_flops_dense() ||
      run.state.kv_bytes() < dense.state.kv_bytes() / 2 || run.state.ledger.layers()[1].density < 0.95 ||
      ledger.flops() - ledger.prefill_flops() < 0.99 * (ledger.flops_dense() - ledger.prefill_flops_dense()));
}

// C2, C4 and the depth integer: what the caches hold is sorted, unique, in range, nested, and told by depth.
TEST_P(Laws, KeptSetsAreSortedNestedAndToldByDepth) {
  const Protection protection{.first = 3, .last = 5, .spans = {{90, 97}}};
  const RunResult run = Run({.spec = entry_.active, .protection = protection, .decode = 8});
  const bool evicts = (traits_ & kEvicts) != 0;
  const bool skips = (traits_ & kSkipsAttention) != 0;
  std::vector<int32_t> depth(static_cast<size_t>(tokens_) + 8, 0);
  Positions before;
  for (size_t l = 0; l < run.state.layers.size(); ++l) {
    SCOPED_TRACE(l);
    for (const std::span<const int32_t> list : run.state.layers[l].cache.position_lists()) {
      const Positions here(list.begin(), list.end());
      ASSERT_TRUE(std::is_sorted(here.begin(), here.end()));
      ASSERT_EQ(std::adjacent_find(here.begin(), here.end()), here.end());
      ASSERT_GE(here.front(), 0);
      ASSERT_LT(here.back(), tokens_ + 8);
      for (const int32_t p : {0, 1, 2, 90, 93, 96}) {
        EXPECT_TRUE((traits_ & kMovesPositions) != 0 || Has(here, p)) << p;
      }
      for (int32_t p = tokens_ - 5; p < tokens_; ++p) EXPECT_TRUE(Has(here, p)) << p;
      for (int32_t p = tokens_; p < tokens_ + 8 && !evicts; ++p) EXPECT_TRUE(Has(here, p)) << p;
    }
    const Positions stored = StoredPositions(run.state, static_cast<int>(l));
    EXPECT_TRUE(l == 0 || evicts || skips || IsSubset(stored, before));
    if (skips) {  // a token that this layer skipped may attend in the next one; kept[5] is the query alone
      const Positions held(stored.begin(), std::ranges::lower_bound(stored, static_cast<int32_t>(tokens_)));
      EXPECT_TRUE(IsSubset(held, run.kept[std::min<size_t>(l, 4)]));
    }
    for (const int32_t p : stored) ++depth[static_cast<size_t>(p)];
    before = stored;
    EXPECT_TRUE(IsSubset(run.ffn[l], run.kept[l]));  // ffn is taken inside keep
    for (const int32_t p : {0, 1, 2, 90, 93, 96, static_cast<int32_t>(tokens_) - 5}) {
      EXPECT_TRUE(l == 5 || Has(run.ffn[l], p)) << p;
      for (const auto& step : run.attended) {
        EXPECT_TRUE((traits_ & kEvicts) != 0 || Has(step[l], p)) << p;
      }
    }
    EXPECT_TRUE(Has(run.ffn[l], tokens_ - 1));
  }
  for (size_t p = 0; p < depth.size() && !evicts; ++p) {
    EXPECT_TRUE(skips ? depth[p] <= run.state.depth[p] : depth[p] == run.state.depth[p]) << p;
  }
}

// T-LZ1, T-LZ3, T-LZ8: a token is computed at most once per layer in the whole generation, and is parked if
// and only if it left before the last layer and its method brings tokens back.
TEST_P(Laws, ComputedOnceAndParkedOrDone) {
  const RunResult run = Run({.spec = entry_.active, .decode = 16});
  int64_t computed = 0;
  int64_t parked = 0;
  const bool revives = (traits_ & kRevives) != 0;
  for (size_t p = 0; p < run.state.depth.size(); ++p) {
    computed += run.state.depth[p];
    const bool waits = run.state.aux.Has(static_cast<int32_t>(p));
    EXPECT_EQ(waits, revives && run.state.depth[p] < 6) << p;
    parked += waits ? 1 : 0;
  }
  if ((traits_ & kSkipsAttention) != 0) {  // layers that a token passed without a key
    EXPECT_LT(run.state.ledger.token_layers(), computed);
    computed = 0;
    for (int l = 0; l < 6; ++l) computed += std::ssize(StoredPositions(run.state, l));
  }
  EXPECT_EQ(run.state.ledger.token_layers(), computed);
  EXPECT_EQ(run.state.aux.tokens(), parked);
  EXPECT_EQ(run.state.aux.bytes(), parked * 64 * (backend_->cache_dtype() == DType::kF32 ? 4 : 2));
  EXPECT_LE(run.state.ledger.token_layers(), 6 * (tokens_ + 16));
  // Nothing but a token that came back is computed beside the current one.
  size_t revived = 0;
  for (const auto& step : run.revived) revived += step.size();
  EXPECT_TRUE(revives || revived == 0);
  EXPECT_EQ(run.state.ledger.revived > 0, revived > 0);
  EXPECT_TRUE(!revives || revived > 0) << "nothing came back: the law was not tried";
}

// C3: with W_k = 0 every key is the bias before RoPE, so un-rotating a cached key by its position must give
// the bias.
TEST_P(Laws, KeysStandAtTheirOriginalPositions) {
  if ((traits_ & kMovesPositions) != 0) GTEST_SKIP() << "its positions are slots";
  for (const bool interleaved : {false, true}) {
    TinyModel tiny = MakeTiny({.architecture = "qwen2", .interleaved = interleaved});
    for (int l = 0; l < 6; ++l) {
      const MutableTensorView w = tiny.store->Mutable("blk." + std::to_string(l) + ".attn_k.weight");
      for (int64_t r = 0; r < w.rows; ++r) std::fill_n(w.Row<float>(r).begin(), w.cols, 0.0f);
    }
    RunOptions options{.spec = entry_.active, .decode = 3};
    const RunResult run = Run(tiny, prompt_, options);
    const double tolerance = GetParam().arithmetic.exact ? 1e-5 : 4e-3;
    for (size_t l = 0; l < run.state.layers.size(); ++l) {
      const LayerCache& cache = run.state.layers[l].cache;
      const HostRows keys(cache.keys());
      const std::span<const float> bias =
          tiny.store->Find("blk." + std::to_string(l) + ".attn_k.bias")->view.Row<float>(0);
      for (int64_t row = 0; row < cache.rows(); ++row) {
        const auto key = [&](int i) {
          const TensorView k = keys.view();
          return k.dtype == DType::kF32 ? double{k.Row<float>(row)[static_cast<size_t>(i)]}
                                        : double{ToFloat(k.Row<BF16>(row)[static_cast<size_t>(i)])};
        };
        for (int pair = 0; pair < 8; ++pair) {  // two kv heads of four pairs
          const int head = pair / 4 * 8;
          const int a = head + (interleaved ? 2 * (pair % 4) : pair % 4);
          const int b = interleaved ? a + 1 : a + 4;
          const double angle =
              cache.positions(pair / 4)[static_cast<size_t>(row)] * std::pow(10000.0, -(pair % 4) / 4.0);
          ASSERT_NEAR(key(a) * std::cos(angle) + key(b) * std::sin(angle), bias[static_cast<size_t>(a)],
                      tolerance)
              << "layer " << l << " row " << row;
          ASSERT_NEAR(key(b) * std::cos(angle) - key(a) * std::sin(angle), bias[static_cast<size_t>(b)],
                      tolerance)
              << "layer " << l << " row " << row;
        }
      }
    }
  }
}

// C5: the ledger counts what ran, and its FLOPs are the closed form (ledger.h) over the sets that were
// chosen.
TEST_P(Laws, LedgerIsTheClosedForm) {
  for (const std::string& architecture : TinyArchitectures(*backend_)) {
    SCOPED_TRACE(architecture);
    const TinyModel tiny = TinyOf(architecture);
    const RunResult run = Run(tiny, prompt_, {.spec = entry_.active});
    const ModelShape& s = tiny.config.shape;
    const double d = 64, h = 8, g = s.layer(0).kv_heads, i = 96;
    // Gemma 4: in every other layer two experts of 40 beside the FFN; embeddings of 16.
    const bool gemma4 = architecture == "gemma4";
    const double own = 6 * d * (gemma4 ? 16 : 0);
    // gpt-oss: two experts of 40, in every other layer one of 24 behind a gate for all, a router of six.
    const bool mixtures = architecture == "gpt-oss";
    const auto mixture = [&](size_t l) {
      return 6 * d * (2 * 40) + 2 * d * 6 + (l % 2 == 0) * (6 * d * 24 + 2 * d);
    };
    double flops = 2 * d * 50;
    for (const LayerShape& layer : s.tail) {
      const auto keys =
          static_cast<double>(run.state.ledger.layers()[static_cast<size_t>(layer.keys_of)].kv_rows);
      flops += 4 * d * h * layer.head_dim + 6 * d * 64 + own + 4 * h * layer.head_dim * keys;
    }
    int64_t token_layers = 0;
    for (size_t l = 0; l < 6; ++l) {
      const double c = s.layer(static_cast<int>(l)).head_dim;
      const LayerCounts& counts = run.state.ledger.layers()[l];
      if ((traits_ & kEvicts) == 0) {
        EXPECT_EQ(counts.kv_rows, run.state.layers[l].cache.rows());
      } else if ((traits_ & kDropsRows) == 0) {
        EXPECT_EQ(counts.kv_rows, tokens_);
      } else {  // FastKV drops before a layer. The last layer's set is its one query.
        EXPECT_EQ(counts.kv_rows, std::ssize(run.kept[std::min<size_t>(l, 4)]));
      }
      const auto n = static_cast<double>(counts.kv_rows);
      const bool last = l == 5;
      const double q = last ? 1 : n;
      const auto m = static_cast<double>(run.ffn[l].size());
      EXPECT_EQ(counts.kv_rows, static_cast<int64_t>(n));
      EXPECT_EQ(counts.query_rows, static_cast<int64_t>(q));
      EXPECT_EQ(counts.ffn_rows, static_cast<int64_t>(m));
      EXPECT_TRUE(!last || m == 1);
      if ((traits_ & kSkipsAttention) == 0) {
        EXPECT_EQ(counts.probed_rows, 0);
      } else if (!last) {
        EXPECT_EQ(counts.probed_rows, std::ssize(run.kept[l]) - counts.kv_rows);
      }
      token_layers += counts.kv_rows;
      flops += 2 * d * g * c * static_cast<double>(counts.probed_rows) + 4 * d * g * c * n +
               (s.layer(static_cast<int>(l)).output_gate ? 6 : 4) * d * h * c * q +
               (last ? 4 * h * c * n : 2 * h * c * n * n) * counts.density +
               (mixtures && l % 3 != 1 ? mixture(l) : (s.gated_ffn ? 6 : 4) * d * i) * m +
               (gemma4 && l % 2 == 1 ? 6 * d * 2 * 40 + 2 * d * 6 : 0) * m +
               own * static_cast<double>(counts.ended_rows);
    }
    EXPECT_EQ(run.state.ledger.token_layers(), token_layers);
    EXPECT_DOUBLE_EQ(run.state.ledger.prefill_flops(), flops);
    EXPECT_EQ(run.state.ledger.token_layers_dense(), 6 * tokens_);
  }
}

// The ledger of decode: each step attends the cached rows of each layer, itself included.
TEST_P(Laws, LedgerCountsDecodeSteps) {
  if ((traits_ & (kRevives | kEvicts | kSparseDecode)) != 0)
    GTEST_SKIP() << "a step attends less than the cache";
  const RunResult run = Run({.spec = entry_.active, .decode = 2});
  const ModelShape& s = llama_.config.shape;
  double flops = run.state.ledger.prefill_flops();
  for (const int64_t missing : {1, 0}) {
    std::vector<StepCounts> keys;
    for (const LayerState& layer : run.state.layers) keys.push_back({.keys = layer.cache.rows() - missing});
    flops += DecodeFlops(s, keys);
  }
  EXPECT_DOUBLE_EQ(run.state.ledger.flops(), flops);
  EXPECT_EQ(run.state.ledger.token_layers_dense(), 6 * (tokens_ + 2));
}

// C7: the number of threads changes neither the sets nor a bit of the logits.
TEST_P(Laws, ThreadsChangeNothing) {
  const RunResult one = RunTiny(llama_.Make(), prompt_, *NewBackend(1), {.spec = entry_.active, .decode = 8});
  for (const int threads : {2, 3}) {
    SCOPED_TRACE(threads);
    const RunResult more =
        RunTiny(llama_.Make(), prompt_, *NewBackend(threads), {.spec = entry_.active, .decode = 8});
    EXPECT_EQ(more.kept, one.kept);
    EXPECT_EQ(more.ffn, one.ffn);
    ExpectSameLogits(more, one);
  }
}

// C8: with its default minimum a method stands aside here, says why, and the run is the dense one.
TEST_P(Laws, ShortPromptsRunDense) {
  const RunResult run = Run({.spec = entry_.bare.empty() ? entry_.name : entry_.bare, .decode = 4});
  EXPECT_FALSE(run.active);
  EXPECT_NE(run.reason.find(std::to_string(tokens_) + " prompt tokens"), std::string::npos) << run.reason;
  EXPECT_NE(run.reason.find(entry_.name), std::string::npos) << run.reason;
  ExpectSameLogits(run, Run({.decode = 4}));
}

// C9: how a layer is cut into tiles changes nothing.
TEST_P(Laws, TilesChangeNothing) {
  for (const std::string& architecture : TinyArchitectures(*backend_)) {
    SCOPED_TRACE(architecture);
    const TinyModel tiny = TinyOf(architecture);
    const RunResult whole = Run(tiny, prompt_, {.spec = entry_.active, .decode = 2, .tile_rows = 512});
    for (const int64_t rows : {1, 7, 64}) {
      SCOPED_TRACE(rows);
      const RunResult tiled = Run(tiny, prompt_, {.spec = entry_.active, .decode = 2, .tile_rows = rows});
      EXPECT_EQ(tiled.kept, whole.kept);
      EXPECT_EQ(tiled.ffn, whole.ffn);
      ExpectSameLogits(tiled, whole);
    }
  }
}

// C10: without queries all scores of a row tie, and the earlier positions win; so does a prompt of one
// repeated token.
TEST_P(Laws, TiesGoToTheEarlier) {
  if (!entry_.ties) GTEST_SKIP() << "its scores do not tie there";
  for (int l = 0; l < 6; ++l) {
    const MutableTensorView w = llama_.store->Mutable("blk." + std::to_string(l) + ".attn_q.weight");
    for (int64_t r = 0; r < w.rows; ++r) std::fill_n(w.Row<float>(r).begin(), w.cols, 0.0f);
  }
  const RunResult run = Run({.spec = entry_.active});
  for (size_t l = static_cast<size_t>(entry_.first_layer) - 1; l < 5; ++l) {
    for (const auto* list : {&run.kept, &run.ffn}) {
      const Positions& set = (*list)[l];
      if (set.size() == static_cast<size_t>(tokens_)) continue;
      // A run from position 0, then nothing until the protected end.
      size_t head = 0;
      while (head < set.size() && set[head] == static_cast<int32_t>(head)) ++head;
      ASSERT_GT(head, 10u);
      for (size_t i = head; i < set.size(); ++i) EXPECT_GE(set[i], tokens_ - 8) << "layer " << l;
    }
  }
}

// C11: lengths around a block and a budget, down to one token.
TEST_P(Laws, OddPromptLengths) {
  for (const int64_t tokens :
       {1, 2, 7, 8, 9, kBlock - 1, kBlock, kBlock + 1, 2 * kBlock, 63, 64, 65, 111, 112, 113, 128, 129}) {
    SCOPED_TRACE(tokens);
    const std::vector<int32_t> prompt = RandomPrompt(tokens, 50);
    const RunResult run = Run(llama_, prompt, {.spec = entry_.active, .decode = 2});
    for (const std::vector<float>& logits : run.logits) {
      ASSERT_TRUE(std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }));
    }
    for (const LayerState& layer : run.state.layers) {
      const LayerCache& cache = layer.cache;
      ASSERT_GE(cache.positions().front(), 0);
      ASSERT_TRUE((traits_ & kEvicts) != 0 || Has(PositionsOf(cache), static_cast<int32_t>(tokens) - 1));
    }
  }
}

// C15, T-FT5: layers below the first that acts hold exactly what a dense run holds. The rows that the first
// pruned layer holds were computed from nothing but dense layers, so they are bit-equal too: batch
// invariance.
TEST_P(Laws, LayersBelowTheFirstAreDense) {
  if (entry_.first_layer < 0) GTEST_SKIP() << "it moves keys in every layer";
  for (const std::string& architecture : TinyArchitectures(*backend_)) {
    SCOPED_TRACE(architecture);
    const TinyModel tiny = TinyOf(architecture);
    const RunResult& dense = Dense(architecture, 0);
    const RunResult run = Run(tiny, prompt_, {.spec = entry_.active});
    for (size_t l = 0; l <= static_cast<size_t>(entry_.first_layer); ++l) {
      SCOPED_TRACE(l);
      ASSERT_TRUE(l == static_cast<size_t>(entry_.first_layer) || (traits_ & kEvicts) != 0 ||
                  PositionsOf(run.state.layers[l].cache) == PositionsOf(dense.state.layers[l].cache));
      ExpectRowsOf(run.state.layers[l].cache, dense.state.layers[l].cache);
    }
  }
}

// C16: keeping less never costs more.
TEST_P(Laws, CostFallsWithWhatIsKept) {
  if (entry_.cheaper.empty()) GTEST_SKIP() << "its prefill costs what dense costs";
  double before = Run({}).state.ledger.prefill_flops();
  const double dense = before;
  for (const std::string& spec : entry_.cheaper) {
    const double flops = Run({.spec = spec}).state.ledger.prefill_flops();
    EXPECT_LE(flops, before) << spec;
    before = flops;
  }
  EXPECT_LT(before, entry_.cheapest * dense);
}

INSTANTIATE_TEST_SUITE_P(Methods, Laws, testing::ValuesIn(LawCases()), [](const auto& test) {
  return std::string(test.param.arithmetic.name) + "_" + test.param.method;
});

}  // namespace
}  // namespace coppice::laws_test
