// Mixtures of experts: the forms in which files store them, and results that do not depend on the company of
// a row.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "model/transformer.h"
#include "tests_support.h"
#include "tiny_model.h"

namespace coppice {
namespace {

using testing::HasSubstr;

TinyModel TinyMixture(int layers = 3) { return MakeTiny({.architecture = "qwen3moe", .layers = layers}); }

Tensor LogitsOf(const Transformer& model, const std::vector<int32_t>& tokens, Backend& be,
                int64_t tile_rows = 256) {
  SequenceState sequence = model.NewSequence(std::ssize(tokens), std::ssize(tokens), be);
  Workspace ws = model.NewWorkspace(tile_rows);
  TokenPolicy dense;
  Tensor logits;
  model.Prefill(tokens, {dense, sequence, ws, be}, logits, true);
  return logits;
}

bool SameRows(const Tensor& a, const Tensor& b, int64_t rows) {
  return std::ranges::equal(std::span(a.view().data, static_cast<size_t>(rows * a.cols() * 4)),
                            std::span(b.view().data, static_cast<size_t>(rows * b.cols() * 4)));
}

// A longer prompt gives every expert more rows, and more than one group of kMixtureRows.
TEST(Mixture, ARowDoesNotDependOnTheOthers) {
  const auto be = MakeNativeBackendOrSkip("cpu", {.threads = 2});
  if (!be) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
  const Transformer model = TinyMixture(1).Make();
  const std::vector<int32_t> tokens = RandomPrompt(kMixtureRows + 300, 50);
  const Tensor whole = LogitsOf(model, tokens, *be);
  for (const int64_t rows : {int64_t{1}, int64_t{17}, int64_t{1000}, kMixtureRows + 1}) {
    const std::vector<int32_t> part(tokens.begin(), tokens.begin() + rows);
    EXPECT_TRUE(SameRows(LogitsOf(model, part, *be, 100), whole, rows)) << rows;
  }
}

// Copies `model` with its experts under other names; the arithmetic sees the same values.
class Restored {
 public:
  explicit Restored(const TinyModel& model) : model_{model.config, std::make_shared<TinyStore>()} {
    for (const StoredTensor& t : model.store->tensors()) {
      if (t.name.find("_exps.") == std::string::npos) Copy(t.name, t.shape, t.view);
    }
  }
  void Copy(const std::string& name, std::vector<int64_t> shape, const TensorView& from) {
    TestRandom unused(0);
    model_.store->Add(name, std::move(shape), 0, 0, unused);
    CopyRows(from, model_.store->Mutable(name));
  }
  TinyModel& model() { return model_; }

 private:
  TinyModel model_;
};

TEST(Mixture, FusedAndSeparateExpertsAreTheSame) {
  const auto be = MakeBackend("reference", {});
  const TinyModel stacked = TinyMixture();
  const std::vector<int32_t> tokens = RandomPrompt(20, 50);
  const Tensor wanted = LogitsOf(stacked.Make(), tokens, *be);
  Restored fused(stacked);
  Restored each(stacked);
  const int64_t d = stacked.config.shape.hidden;
  for (int l = 0; l < 3; ++l) {
    const MixtureShape& m = stacked.config.shape.layer(l).mixture;
    if (m.experts == 0) continue;
    const std::string p = fmt::format("blk.{}.", l);
    const auto of = [&](const char* name) { return stacked.store->Find(p + name)->view; };
    const TensorView gate = of("ffn_gate_exps.weight");
    const TensorView up = of("ffn_up_exps.weight");
    const TensorView down = of("ffn_down_exps.weight");
    fused.Copy(p + "ffn_down_exps.weight", {m.experts, d, m.width}, down);
    Tensor both(DType::kF32, m.experts * 2 * m.width, d);
    for (int e = 0; e < m.experts; ++e) {
      CopyRows(gate.Rows(e * m.width, m.width), both.mutable_view().Rows(2 * e * m.width, m.width));
      CopyRows(up.Rows(e * m.width, m.width), both.mutable_view().Rows((2 * e + 1) * m.width, m.width));
      each.Copy(fmt::format("{}ffn_gate.{}.weight", p, e), {m.width, d}, gate.Rows(e * m.width, m.width));
      each.Copy(fmt::format("{}ffn_up.{}.weight", p, e), {m.width, d}, up.Rows(e * m.width, m.width));
      each.Copy(fmt::format("{}ffn_down.{}.weight", p, e), {d, m.width}, down.Rows(e * d, d));
    }
    fused.Copy(p + "ffn_gate_up_exps.weight", {m.experts, 2 * m.width, d}, both.view());
  }
  EXPECT_TRUE(SameRows(LogitsOf(fused.model().Make(), tokens, *be), wanted, 20));
  EXPECT_TRUE(SameRows(LogitsOf(each.model().Make(), tokens, *be), wanted, 20));
}

TEST(Mixture, BadTensorsAreNamed) {
  const auto refusal = [](auto change) {
    TinyModel model = TinyMixture();
    change(model);
    return ErrorOf([&] { model.Make(); });
  };
  EXPECT_THAT(refusal([](TinyModel& m) { m.config.shape.layers[0].mixture.experts = 7; }),
              HasSubstr("'blk.0.ffn_gate_inp.weight' is [6, 64], config says [7, 64]"));
  EXPECT_THAT(refusal([](TinyModel& m) { m.config.shape.layers[2].mixture.width = 41; }),
              HasSubstr("'blk.2.ffn_gate_exps.weight' is [6, 40, 64], config says [6, 41, 64]"));
  EXPECT_THAT(refusal([](TinyModel& m) { m.config.shape.layers[0].mixture.shared_width = 25; }),
              HasSubstr("'blk.0.ffn_gate_shexp.weight' is [24, 64], config says [25, 64]"));
  EXPECT_THAT(refusal([](TinyModel& m) {
                m.config.shape.layers[1].mixture = {6, 2, 40};
              }),
              HasSubstr("'blk.1.ffn_gate_inp.weight' is missing"));
  EXPECT_THAT(refusal([](TinyModel& m) {
                TestRandom random(1);
                m.store->Add("blk.0.exp_probs_b.bias", {6}, 1, 0, random);
              }),
              HasSubstr("'blk.0.exp_probs_b.bias' is not supported"));
}

TEST(Sinks, EachHeadNeedsOne) {
  TinyModel model = MakeTiny({.architecture = "gpt-oss"});
  model.config.shape.layers[1].heads = 4;
  model.config.shape.layers[1].kv_heads = 1;
  model.config.shape.layers[1].head_dim = 16;
  EXPECT_THAT(ErrorOf([&] { model.Make(); }), HasSubstr("'blk.1.attn_sinks.weight' is [8], config says [4]"));
  TinyModel without = MakeTiny({.architecture = "qwen3moe"});
  without.config.sinks = true;
  EXPECT_THAT(ErrorOf([&] { without.Make(); }), HasSubstr("'blk.0.attn_sinks.weight' is missing"));
}

// A bias of an expert's maps, and of the router, is added; one that chooses alone changes who is chosen.
TEST(Mixture, BiasesCount) {
  const auto be = MakeBackend("reference", {});
  const std::vector<int32_t> tokens = RandomPrompt(9, 50);
  const Tensor plain = LogitsOf(TinyMixture().Make(), tokens, *be);
  const auto biased = [&](const char* name, std::vector<int64_t> shape, RouterKind kind) {
    TinyModel model = TinyMixture();
    model.config.router.kind = kind;
    const Tensor before = LogitsOf(model.Make(), tokens, *be);
    TestRandom random(3);
    model.store->Add(name, std::move(shape), 2, 0, random);
    return !SameRows(LogitsOf(model.Make(), tokens, *be), before, 9);
  };
  EXPECT_TRUE(biased("blk.0.ffn_gate_inp.bias", {6}, RouterKind::kSoftmaxTopK));
  EXPECT_TRUE(biased("blk.0.ffn_gate_exps.bias", {6, 40}, RouterKind::kSoftmaxTopK));
  EXPECT_TRUE(biased("blk.2.ffn_up_exps.bias", {6, 40}, RouterKind::kTopKSoftmax));
  EXPECT_TRUE(biased("blk.2.ffn_down_exps.bias", {6, 64}, RouterKind::kSigmoidTopK));
  EXPECT_TRUE(biased("blk.2.exp_probs_b.bias", {6}, RouterKind::kSigmoidTopK));
}

TEST(Mixture, CountsParametersOfAToken) {
  const TinyModel model = TinyMixture();
  const Transformer made = model.Make();
  EXPECT_EQ(made.weights().parameters - made.weights().active_parameters, 2 * 4 * 3 * 40 * 64);
}

// Layers 0 and 2 of three have a mixture of 6 experts, 2 for a row; the last layer runs one row.
TEST(Mixture, TheLedgerCountsTheExpertsRead) {
  const auto be = MakeBackend("reference", {});
  const Transformer model = TinyMixture().Make();
  const auto read = [&](int64_t tokens) {
    SequenceState sequence = model.NewSequence(tokens, tokens, *be);
    Workspace ws = model.NewWorkspace(64);
    TokenPolicy dense;
    Tensor logits;
    model.Prefill(RandomPrompt(tokens, 50), {dense, sequence, ws, *be}, logits);
    return sequence.ledger;
  };
  EXPECT_EQ(read(1).experts_read(), 4);
  EXPECT_EQ(read(200).experts_read(), 6 + 2);
  EXPECT_EQ(read(200).experts_read_dense(), ExpectedExperts({.experts = 6, .used = 2}, 200) + 2);
}

TEST(Mixture, TheWorkspaceKnowsItsSize) {
  ModelShape dense = TinyMixture().config.shape;
  const ModelShape sparse = dense;
  for (LayerShape& layer : dense.layers) {
    layer.ffn = 96;
    layer.mixture = {};
  }
  EXPECT_EQ(Workspace::Bytes(sparse, 100, 64) - Workspace::Bytes(dense, 100, 64), 4 * 100 * (3 * 64 + 6));
  EXPECT_EQ(Workspace::Bytes(sparse, 100000, 64) - Workspace::Bytes(dense, 100000, 64),
            4 * kMixtureRows * (3 * 64 + 6));
}

}  // namespace
}  // namespace coppice
