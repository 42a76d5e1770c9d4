// Laws of a model in which some layers have a sliding window, shorter than the prompt, and others have none
// (Gemma 3), under the methods that act in it.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "laws_support.h"
#include "shape_edit.h"

namespace coppice::window_laws_test {
namespace {

constexpr int64_t kTokens = 500;  // sparse attention leaves the last queries dense
constexpr int32_t kWindow = 40;

// They score in layers 2 and 5, which have no window.
const std::vector<std::string> kActing = {
    "coppice:layers=3,keep=0.5,queries=8,pool=max,widen=2,floor=0,last=8,revive_mass=0,revive_cap=16,min=0",
    "lazyllm:layers=3,keep=0.5,min=0",
    "sliminfer:layers=3,keep=112,block=16,last=1,unit=8,window=4,gamma=1,revive_cap=2,min=0",
    "uniprefill:layers=2,p=0.5,block=8,sink=8,last=8,min=0",
    "gemfilter:layer=2,keep=0.4,positions=original,min=0",
    "minference:vertical=30,slash=100,min=0",
    "flashprefill:alpha=1,block=16,sink=1,window=1,min=0",
    "xattention:threshold=0.3,stride=4,block=16,min=0",
    "quest:budget=64,dense=2,min=0",
    "streamingllm:sink=4,recent=60,min=0",
    "random:keep=0.5,min=0"};

class WindowLaws : public testing::TestWithParam<Arithmetic> {
 protected:
  void SetUp() override {
    backend_ = MakeBackendOrSkip(GetParam().backend, {.threads = 2, .exact = GetParam().exact});
    if (!backend_) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
    if (backend_->name() == "gpu") GTEST_SKIP() << "Backend::CheckNeeds refuses the model";
    for (LayerShape& layer : gemma_.config.shape.layers) {
      if (layer.window > 0) layer.window = kWindow;
    }
  }
  RunResult Run(const RunOptions& options) { return RunTiny(gemma_.Make(), prompt_, *backend_, options); }

  std::unique_ptr<Backend> backend_;
  TinyModel gemma_ = MakeTiny({.architecture = "gemma3", .interleaved = false});
  std::vector<int32_t> prompt_ = RandomPrompt(kTokens, 50);
};

// With windows everywhere, six layers reach 6 (window - 1) tokens back, and not one token further.
TEST_P(WindowLaws, AWindowEndsWhereItSays) {
  SetInAll(gemma_.config.shape, &LayerShape::window, 4);
  for (const int64_t reach : {18, 19}) {
    std::vector<int32_t> prompt = RandomPrompt(reach + 1, 50);
    const RunResult before = RunTiny(gemma_.Make(), prompt, *backend_, {});
    prompt.front() = (prompt.front() + 1) % 50;
    const RunResult after = RunTiny(gemma_.Make(), prompt, *backend_, {});
    const bool same = SameBits(before.logits[0], after.logits[0]);
    if (reach > 18 || GetParam().exact) {  // narrower types may round the little that comes through
      EXPECT_EQ(same, reach > 18) << reach;
    }
  }
}

TEST_P(WindowLaws, DecodeIsPrefillOfTheLongerText) {
  const RunResult run = Run({.decode = 6});
  std::vector<int32_t> text = prompt_;
  for (size_t step = 0; step < 6; ++step) {
    text.push_back(run.generated[step]);
    const RunResult longer = RunTiny(gemma_.Make(), text, *backend_, {});
    const double tolerance = GetParam().exact ? 1e-4 : 5e-2;
    for (size_t i = 0; i < 50; ++i) ASSERT_NEAR(longer.logits[0][i], run.logits[step + 1][i], tolerance);
  }
}

TEST_P(WindowLaws, TilesAndThreadsChangeNothing) {
  for (const std::string& spec : kActing) {
    SCOPED_TRACE(spec);
    const RunResult whole = Run({.spec = spec, .decode = 4, .tile_rows = 512});
    EXPECT_TRUE(whole.active) << whole.reason;
    for (const float logit : whole.logits.back()) ASSERT_TRUE(std::isfinite(logit));
    for (const int64_t rows : {7, 64}) {
      const RunResult tiled = Run({.spec = spec, .decode = 4, .tile_rows = rows});
      EXPECT_EQ(tiled.kept, whole.kept);
      ExpectSameLogits(tiled, whole);
    }
    const auto one = MakeBackendOrSkip(GetParam().backend, {.threads = 1, .exact = GetParam().exact});
    ExpectSameLogits(RunTiny(gemma_.Make(), prompt_, *one, {.spec = spec, .decode = 4}), whole);
  }
}

TEST_P(WindowLaws, ActingMethodsPrune) {
  const RunResult dense = Run({.decode = 4});
  for (const std::string& spec : kActing)
    EXPECT_FALSE(SameBits(Run({.spec = spec, .decode = 4}).logits.back(), dense.logits.back())) << spec;
}

TEST_P(WindowLaws, IdentityIsDense) {
  const RunResult dense = Run({.decode = 16});
  for (const char* spec :
       {"coppice:layers=3,keep=1,min=0", "lazyllm:layers=3,keep=1,min=0", "sliminfer:layers=3,keep=1,min=0",
        "minference:vertical=100000,slash=100000,min=0", "quest:budget=100000,min=0"}) {
    SCOPED_TRACE(spec);
    ExpectSameLogits(Run({.spec = spec, .decode = 16}), dense);
  }
}

// Layers with a window stay dense within it, so their share of the pairs is 1.
TEST_P(WindowLaws, SparseAttentionActsInTheOtherLayers) {
  const RunResult run = Run({.spec = "flashprefill:alpha=1,block=16,sink=1,window=1,min=0"});
  for (int l = 0; l < 5; ++l)
    EXPECT_EQ(run.state.ledger.layers()[static_cast<size_t>(l)].density < 1, l == 2) << l;
}

// What scores in a layer with a window stands aside, and the run is the dense one.
TEST_P(WindowLaws, ScoresThatEndAtAWindowAreRefused) {
  const RunResult dense = Run({.decode = 2});
  for (const char* spec : {"ftp:min=0", "snapkv:cap=32,window=8,min=0", "h2o:min=0", "static:layer=3,min=0",
                           "coppice:layers=2,keep=0.5,floor=0,min=0", "gemfilter:layer=1,keep=0.4,min=0"}) {
    const RunResult run = Run({.spec = spec, .decode = 2});
    EXPECT_FALSE(run.active) << spec;
    EXPECT_NE(run.reason.find("which attends in a sliding window of 40 tokens"), std::string::npos)
        << run.reason;
    ExpectSameLogits(run, dense);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, WindowLaws, testing::ValuesIn(kArithmetics),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace coppice::window_laws_test
