// A model whose layers differ in every size, in their windows and in their ropes: its logits are a
// textbook's, and the laws hold for it with every method.
#include "engine/dry_run.h"
#include "mixed_model.h"
#include "model/prefix_file.h"
#include "oracle_model.h"
#include "prefix_laws_support.h"
#include "shape_edit.h"
#include "thread_comm.h"

namespace coppice::mixed_laws_test {
namespace {

using oracle::Matrix;
using oracle::Row;

// The logits of each of the text's tokens in fp64, layer by layer. Shares no code with the engine.
class Textbook {
 public:
  explicit Textbook(const TinyModel& model) : llama_(model), config_(model.config) {}

  Matrix Logits(const std::vector<int32_t>& text) const {
    Matrix x;
    for (const int32_t id : text) x.push_back(llama_.embedding[static_cast<size_t>(id)]);
    for (size_t l = 0; l < llama_.layers.size(); ++l) {
      Attend(llama_.layers[l], config_.shape.layers[l], x);
      for (Row& row : x) oracle::AddTo(row, llama_.Ffn(llama_.layers[l], row));
    }
    for (Row& row : x) row = llama_.Logits(row);
    return x;
  }

 private:
  void Turn(const LayerShape& s, double place, Row& x) const {
    if (s.rope == kNoRope) return;
    const RopeConfig& r = config_.ropes[static_cast<size_t>(s.rope)];
    const auto half = static_cast<size_t>(r.dims) / 2;
    for (size_t head = 0; head < x.size(); head += static_cast<size_t>(s.head_dim)) {
      for (size_t i = 0; i < half; ++i) {
        const double angle = place * std::pow(r.base, -2.0 * static_cast<double>(i) / r.dims);
        double& a = x[head + (r.interleaved ? 2 * i : i)];
        double& b = x[head + (r.interleaved ? 2 * i + 1 : i + half)];
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = a * std::sin(angle) + b * std::cos(angle);
        a = turned;
      }
    }
  }
  void Attend(const oracle::LayerWeights& w, const LayerShape& s, Matrix& x) const {
    Matrix q, k, v;
    for (size_t i = 0; i < x.size(); ++i) {
      const Row normed = llama_.Norm(x[i], w.attn_norm);
      q.push_back(oracle::Times(w.q, normed));
      k.push_back(oracle::Times(w.k, normed));
      v.push_back(oracle::Times(w.v, normed));
      Turn(s, static_cast<double>(i), q.back());
      Turn(s, static_cast<double>(i), k.back());
    }
    const auto c = static_cast<size_t>(s.head_dim);
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t window = s.window > 0 ? static_cast<size_t>(s.window) : x.size();
      const size_t first = i + 1 > window ? i + 1 - window : 0;
      Row mixed(q[i].size(), 0.0);
      for (size_t h = 0; h < static_cast<size_t>(s.heads); ++h) {
        const size_t of_kv = h / static_cast<size_t>(s.heads / s.kv_heads) * c;
        double sum = 0;
        Row weights;
        for (size_t j = first; j <= i; ++j) {
          double dot = 0;
          for (size_t d = 0; d < c; ++d) dot += q[i][h * c + d] * k[j][of_kv + d];
          weights.push_back(std::exp(dot / std::sqrt(static_cast<double>(c))));
          sum += weights.back();
        }
        for (size_t j = first; j <= i; ++j) {
          for (size_t d = 0; d < c; ++d) mixed[h * c + d] += weights[j - first] / sum * v[j][of_kv + d];
        }
      }
      oracle::AddTo(x[i], oracle::Times(w.output, mixed));
    }
  }

  oracle::Llama llama_;
  ModelConfig config_;
};

double Distance(const Row& a, const Row& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

class MixedLaws : public testing::TestWithParam<LawArm> {
 protected:
  void SetUp() override {
    backend_ = MakeBackendOrSkip(GetParam().backend, {.threads = 2, .exact = GetParam().exact});
    if (!backend_) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
  }
  double tolerance() const { return GetParam().exact ? 1e-4 : 3e-2; }
  RunResult Run(const RunOptions& options, const TinyModel& model) {
    return RunTiny(model.Make(), prompt_, *backend_, options);
  }

  std::unique_ptr<Backend> backend_;
  std::vector<int32_t> prompt_ = RandomPrompt(200, 50);
};

TEST_P(MixedLaws, LogitsAreTheTextbooks) {
  const TinyModel model = MakeMixed(true);
  for (const int64_t tile_rows : {64, 7}) {
    const RunResult run = Run({.decode = 4, .tile_rows = tile_rows}, model);
    std::vector<int32_t> text = prompt_;
    text.insert(text.end(), run.generated.begin(), run.generated.end());
    const Matrix wanted = Textbook(model).Logits(text);
    for (size_t step = 0; step < run.logits.size(); ++step) {
      const Row got(run.logits[step].begin(), run.logits[step].end());
      EXPECT_LT(Distance(got, wanted[prompt_.size() - 1 + step]), tolerance()) << step;
    }
  }
}

// What the comparison above can see: each of these layers with the window or the rope of another.
TEST(MixedTextbook, SeesWhatALayerTakesFromAnother) {
  const TinyModel model = MakeMixed(true);
  const std::vector<int32_t> prompt = RandomPrompt(200, 50);
  const Row wanted = Textbook(model).Logits(prompt).back();
  const std::vector<void (*)(std::vector<LayerShape>&)> changes = {
      [](auto& layers) { layers[1].window = 40; }, [](auto& layers) { layers[3].window = 0; },
      [](auto& layers) { layers[4].window = 24; }, [](auto& layers) { layers[2].rope = 0; },
      [](auto& layers) { layers[1].rope = 0; },    [](auto& layers) { layers[3].rope = 1; }};
  for (size_t i = 0; i < changes.size(); ++i) {
    TinyModel other = model;
    changes[i](other.config.shape.layers);
    EXPECT_GT(Distance(Textbook(other).Logits(prompt).back(), wanted), 2e-3) << i;
  }
}

TEST_P(MixedLaws, TilesAndProcessesChangeNothing) {
  const TinyModel model = MakeMixed(false);
  for (const MethodEntry& entry : PrefixEntries()) {
    SCOPED_TRACE(entry.name);
    prompt_ = RandomPrompt(entry.tokens, 50);
    const RunResult whole = Run({.spec = entry.active, .decode = 3}, model);
    EXPECT_TRUE(whole.active || entry.active == "none") << whole.reason;
    ExpectSameRun(Run({.spec = entry.active, .decode = 3, .tile_rows = 7}, model), whole);
    if (!entry.split) continue;
    ThreadGroup(2).Run([&](Comm& comm) {
      const auto own = MakeBackendOrSkip(GetParam().backend, {.threads = 1, .exact = GetParam().exact});
      const RunResult part =
          RunTiny(model.Make(), prompt_, *own, {.spec = entry.active, .decode = 3, .comm = &comm});
      if (comm.leads()) ExpectSameRun(part, whole);
    });
  }
}

// What an earlier prompt left, kept in a file, gives the run that computes it.
TEST_P(MixedLaws, PrefixesComeBackFromFiles) {
  const TempFolder folder;
  for (const bool windows : {true, false}) {
    const TinyModel model = MakeMixed(windows);
    const ModelShape& shape = model.config.shape;
    PrefixFormat format{.fingerprint = {},
                        .cache_type = backend_->cache_dtype(),
                        .key_widths = {},
                        .hidden = shape.hidden,
                        .vocab = shape.vocab};
    for (const LayerShape& layer : shape.layers) format.key_widths.push_back(layer.key_width());
    for (const MethodEntry& entry : PrefixEntries()) {
      const std::vector<int32_t> document = RandomPrompt(entry.tokens, 50);
      const Transformer transformer = model.Make();
      const PruneChoice choice = MakePolicy(entry.active, TinyContext(transformer, document, *backend_), {});
      const PrefixRules rules = RulesOf(*choice.policy, kLayers, entry.tokens);
      if (rules.point == LayerPoint()) continue;
      SCOPED_TRACE(entry.name);
      PrefixCapture capture(rules.point, kLayers);
      prompt_ = document;
      Run({.spec = entry.active, .capture = &capture}, model);
      const std::shared_ptr<const PrefixState> state = capture.Take(document);
      EXPECT_EQ(state->bytes(), PrefixBytes(shape, backend_->cache_dtype(), rules.point, entry.tokens));
      WritePrefixFile(*state, format, folder.Path("x"));
      const auto read = std::make_shared<const PrefixState>(ReadPrefixFile(folder.Path("x"), format));
      ExpectSameState(*read, *state);
      prompt_ = Question(document, 101, entry.tokens);
      const RunResult fresh = Run({.spec = entry.active, .decode = 3}, model);
      ExpectSameRun(Run({.spec = entry.active, .decode = 3, .prefix = {read, 101}}, model), fresh);
    }
  }
}

TEST_P(MixedLaws, ADryRunCountsWhatRuns) {
  const TinyModel model = MakeMixed(false);
  for (const MethodEntry& entry : LawEntries()) {
    if (!entry.counts || !entry.planned) continue;
    SCOPED_TRACE(entry.name);
    prompt_ = RandomPrompt(entry.tokens, 50);
    const SequenceState state = Run({.spec = entry.active}, model).state;
    const Ledger plan = PlanRun(model.config, prompt_, entry.active, *backend_).ledger;
    for (size_t l = 0; l < 6; ++l) {
      EXPECT_EQ(plan.layers()[l].kv_rows, state.ledger.layers()[l].kv_rows) << l;
      EXPECT_EQ(plan.layers()[l].query_rows, state.ledger.layers()[l].query_rows) << l;
      EXPECT_EQ(plan.layers()[l].ffn_rows, state.ledger.layers()[l].ffn_rows) << l;
    }
    EXPECT_EQ(plan.prefill_flops_dense(), state.ledger.prefill_flops_dense());
    EXPECT_EQ(plan.peak_kv_bytes, state.kv_bytes());
    EXPECT_EQ(plan.peak_held_bytes, state.kv_bytes() + state.aux.bytes());
    EXPECT_EQ(plan.kv_bytes_dense, state.dense_kv_bytes(entry.tokens));
  }
}

// Blocks of every layer in one cold tier, whose records are as wide as the widest layer.
TEST_P(MixedLaws, TheColdTierHoldsLayersOfAnyWidth) {
  const TinyModel model = MakeMixed(false);
  prompt_ = RandomPrompt(208, 50);  // whole blocks
  const std::string spec = "sliminfer:layers=1,keep=128,decode_keep=64,block=16,revive=none,min=0";
  const RunResult cold = Run({.spec = spec, .decode = 8}, model);
  EXPECT_TRUE(cold.active) << cold.reason;
  EXPECT_GT(cold.state.cold_bytes(), 0);
  const RunResult first = Run({.spec = spec, .decode = 1}, model);
  const Ledger plan = PlanRun(model.config, prompt_, spec, *backend_).ledger;
  EXPECT_EQ(plan.cold_bytes, first.state.cold_bytes());
  EXPECT_EQ(plan.kv_bytes + TokenBytes(model.config.shape, backend_->cache_dtype()), first.state.kv_bytes());
  // What is read back is what was there: a run that reads its blocks with other calls has the same bits.
  ExpectSameRun(Run({.spec = spec, .decode = 8, .cold = {"", ColdIo::kSync}}, model), cold);
}

// The closed forms, summed by hand.
TEST(MixedLedger, SumsOverItsLayers) {
  const ModelShape s = MakeMixed(false).config.shape;
  double flops = 2 * 64.0 * 50;
  int64_t bytes = 0;
  for (size_t l = 0; l < 6; ++l) {
    const LayerShape& layer = s.layers[l];
    const double query = layer.heads * layer.head_dim;
    const double key = layer.kv_heads * layer.head_dim;
    const double rows = l == 5 ? 1 : 100;
    flops += 4 * 64 * key * 100 + rows * (4 * 64 * query + 6 * 64.0 * static_cast<double>(layer.ffn)) +
             (l == 5 ? 4 * query * 100 : 2 * query * 100 * 100);
    bytes += 2 * 4 * layer.kv_heads * layer.head_dim;
  }
  EXPECT_DOUBLE_EQ(DensePrefillFlops(s, 100), flops);
  EXPECT_EQ(TokenBytes(s, DType::kF32), bytes);
  EXPECT_EQ(Workspace::Bytes(s, 0, 10), 4 * 10 * (3 * 64 + 2 * 144 + 2 * 64 + 160));
}

TEST(MixedCacheType, RefusesTheLayerWhoseHeadsDoNotFit) {
  EXPECT_NE(
      ErrorOf([] { CheckCacheType(MixedConfig().shape, DType::kQ8_0); }).find("heads of this llama model 8"),
      std::string::npos);
  ModelShape shape = MixedConfig().shape;
  SetInAll(shape, &LayerShape::head_dim, 64);
  CheckCacheType(shape, DType::kQ8_0);
  shape.layers.back().head_dim = 80;
  EXPECT_NE(ErrorOf([&] { CheckCacheType(shape, DType::kQ8_0); }).find("heads of this llama model 80"),
            std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Arms, MixedLaws, testing::ValuesIn(std::span(kArms).first(3)),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace coppice::mixed_laws_test
