// Sequences that decode together get the bits that each gets alone.
#include "laws_support.h"
#include "mixed_model.h"

namespace coppice::together_laws_test {
namespace {

// A sequence behind its prefill.
struct Decoding {
  Decoding(const TinyModel& tiny, const std::string& spec, int64_t prompt_tokens, Backend& be)
      : model(tiny.Make()),
        prompt(RandomPrompt(prompt_tokens, model.config().shape.vocab, static_cast<uint64_t>(prompt_tokens))),
        prune(MakePolicy(spec, TinyContext(model, prompt, be), {})),
        sequence(model.NewSequence(prompt_tokens, prompt_tokens + 64, be)),
        workspace(model.NewWorkspace(48)),
        pass{*prune.policy, sequence, workspace, be} {
    model.Prefill(prompt, pass, logits);
  }
  Decoding(const Decoding&) = delete;

  Transformer model;
  std::vector<int32_t> prompt;
  PruneChoice prune;
  SequenceState sequence;
  Workspace workspace;
  Pass pass;
  Tensor logits;
};

int32_t TokenAt(size_t sequence, int step) {
  return static_cast<int32_t>(7 + 31 * sequence + 13 * step) % 50;
}

struct Arithmetic {
  const char* name;
  BackendOptions options;
};

class TogetherLaws : public testing::TestWithParam<Arithmetic> {
 protected:
  void SetUp() override {
    be_ = MakeBackendOrSkip(GetParam().name, GetParam().options);
    if (!be_) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
  }
  std::vector<std::unique_ptr<Decoding>> Begin(const TinyModel& tiny) {
    std::vector<std::unique_ptr<Decoding>> all;
    // Dense and pruned, with whole and ragged caches, of many lengths.
    for (const char* spec : {"none", "snapkv:cap=40,window=8,min=0", "random:keep=0.4,min=0", "none",
                             "ftp:eta=0.5,dense=2,first=10,last=8,min=0", "fastkv:layer=2,min=0"}) {
      all.push_back(std::make_unique<Decoding>(tiny, spec, 70 + 41 * std::ssize(all), *be_));
      EXPECT_TRUE(all.back()->prune.active || std::string(spec) == "none") << spec;
      EXPECT_TRUE(IsPlainDecode(all.back()->pass)) << spec;
    }
    return all;
  }
  static void ExpectSameState(const Decoding& a, const Decoding& b) {
    for (size_t l = 0; l < a.sequence.layers.size(); ++l) {
      const LayerCache& x = a.sequence.layers[l].cache;
      const LayerCache& y = b.sequence.layers[l].cache;
      ASSERT_EQ(x.rows(), y.rows());
      for (int64_t row = 0; row < x.rows(); ++row) {
        const auto bytes = static_cast<size_t>(BytesOf(x.dtype(), x.width()));
        EXPECT_EQ(std::memcmp(x.keys().RowBytes(row), y.keys().RowBytes(row), bytes), 0);
        EXPECT_EQ(std::memcmp(x.values().RowBytes(row), y.values().RowBytes(row), bytes), 0);
      }
    }
    EXPECT_EQ(a.sequence.depth, b.sequence.depth);
    EXPECT_EQ(a.sequence.ledger.token_layers(), b.sequence.ledger.token_layers());
  }

  void ExpectAsIfAlone(const TinyModel& tiny) {
    const auto alone = Begin(tiny);
    const auto together = Begin(tiny);
    for (int step = 0; step < 6; ++step) {
      std::vector<int32_t> tokens;
      for (size_t i = 0; i < alone.size(); ++i) tokens.push_back(TokenAt(i, step));
      std::vector<DecodeStep> steps;
      steps.reserve(alone.size());
      std::vector<DecodeStep*> some;
      for (size_t i = 0; i < alone.size(); ++i) {
        alone[i]->model.Decode(tokens[i], alone[i]->pass, alone[i]->logits);
        steps.push_back({{&tokens[i], 1}, together[i]->pass, together[i]->logits});
      }
      // In another company at each step.
      for (size_t i = 0; i < steps.size(); ++i) {
        some.push_back(&steps[(i * 5 + static_cast<size_t>(step)) % steps.size()]);
        if (step % 3 != 0 && i % 2 == 1) {
          together[0]->model.DecodeTogether(some);
          some.clear();
        }
      }
      if (!some.empty()) together[0]->model.DecodeTogether(some);
      for (size_t i = 0; i < alone.size(); ++i)
        EXPECT_TRUE(SameBits(RowOf(alone[i]->logits), RowOf(together[i]->logits))) << i << ", step " << step;
    }
    for (size_t i = 0; i < alone.size(); ++i) {
      ExpectSameState(*alone[i], *together[i]);
      EXPECT_EQ(alone[i]->sequence.ledger.flops(), together[i]->sequence.ledger.flops());
    }
  }

  std::unique_ptr<Backend> be_;
};

TEST_P(TogetherLaws, EachSequenceIsAsIfAlone) {
  for (const std::string& architecture : TinyArchitectures(*be_)) {
    SCOPED_TRACE(architecture);
    ExpectAsIfAlone(MakeTiny({.architecture = architecture}));
  }
  SCOPED_TRACE("layers of different shapes");
  ExpectAsIfAlone(MakeMixed(false));
}

TEST_P(TogetherLaws, SeveralTokensOfASequenceAreAsOneByOne) {
  const TinyModel tiny = MakeTiny({});
  const auto alone = Begin(tiny);
  const auto together = Begin(tiny);
  std::vector<std::vector<int32_t>> tokens(alone.size());
  std::vector<DecodeStep> steps;
  steps.reserve(alone.size());
  std::vector<DecodeStep*> all;
  for (size_t i = 0; i < alone.size(); ++i) {
    for (int k = 0; k <= static_cast<int>(i); ++k) tokens[i].push_back(TokenAt(i, k));
    steps.push_back({tokens[i], together[i]->pass, together[i]->logits});
    all.push_back(&steps.back());
  }
  together[0]->model.DecodeTogether(all);
  for (size_t i = 0; i < alone.size(); ++i) {
    for (size_t k = 0; k < tokens[i].size(); ++k) {
      alone[i]->model.Decode(tokens[i][k], alone[i]->pass, alone[i]->logits);
      const std::span<const float> row = together[i]->logits.view().Row<float>(static_cast<int64_t>(k));
      EXPECT_TRUE(std::ranges::equal(alone[i]->logits.view().Row<float>(0), row)) << i << ", token " << k;
    }
    ExpectSameState(*alone[i], *together[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Arithmetics, TogetherLaws,
                         testing::Values(Arithmetic{"reference", {}}, Arithmetic{"cpu", {.threads = 2}},
                                         Arithmetic{"cpu", {.threads = 3, .exact = true}}),
                         [](const auto& run) {
                           return std::string(run.param.name) + (run.param.options.exact ? "_exact" : "");
                         });

// Steps in which a method acts are taken alone.
TEST(PlainDecode, IsNotThatOfAMethodThatActs) {
  const TinyModel tiny = MakeTiny({});
  const auto be = MakeBackendOrSkip("reference", {});
  for (const char* spec :
       {"lazyllm:layers=2/4,keep=0.5,min=0",
        "sliminfer:layers=2/4,keep=112/64,block=16,last=1,unit=8,window=4,gamma=1,revive_cap=2,min=0",
        "h2o:min=0", "quest:budget=64,dense=2,min=0", "streamingllm:sink=4,recent=60,min=0"}) {
    const Decoding decoding(tiny, spec, 150, *be);
    EXPECT_TRUE(decoding.prune.active) << spec;
    EXPECT_FALSE(IsPlainDecode(decoding.pass)) << spec;
  }
}

}  // namespace
}  // namespace coppice::together_laws_test
