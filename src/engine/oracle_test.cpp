// C13 and C14: the engine against an oracle in fp64 that masks what the engine removes (tests/oracle.h). Kept
// sets are identical and logits agree, in prefill and decode, with each method and with both.
#include "oracle.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "laws_support.h"

namespace coppice {
namespace {

constexpr int64_t kSteps = 6;

struct Selected {
  const char* name;
  std::optional<oracle::SlimInfer> slim;
  std::optional<oracle::Ftp> ftp;

  std::string Spec() const {
    std::string spec;
    if (slim) {
      spec += fmt::format("sliminfer:layers={},keep={},block={},unit={},window={},min=0",
                          fmt::join(slim->layers, "/"), fmt::join(slim->keep, "/"), slim->block, slim->unit,
                          slim->window);
    }
    if (ftp) {
      spec += fmt::format("{}ftp:eta={},dense={},first={},last={},min=0", slim ? "+" : "", ftp->eta,
                          ftp->dense, ftp->first, ftp->queries);
    }
    return spec.empty() ? "none" : spec;
  }
};

const oracle::SlimInfer kSlim{{2, 4}, {112, 64}, 16, 8, 4};
const oracle::Ftp kFtp{0.85, 1, 10, 8};
// T-SL7: blocks and units of one token rank by the last query's raw product with each key.
const Selected kPerToken = {"per token", oracle::SlimInfer{{2, 4}, {90, 31}, 1, 1, 1}, {}};
const Selected kMethods[] = {
    {"dense", {}, {}}, {"ftp", {}, kFtp}, {"sliminfer", kSlim, {}}, {"both", kSlim, kFtp}};

class Oracle : public testing::TestWithParam<std::tuple<Arithmetic, bool>> {
 protected:
  void SetUp() override {
    backend_ = MakeBackendOrSkip(arithmetic().backend, {.threads = 2, .exact = arithmetic().exact});
    if (!backend_) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
  }
  Arithmetic arithmetic() const { return std::get<0>(GetParam()); }
  bool interleaved() const { return std::get<1>(GetParam()); }

  // `clear`: how far from any other choice the oracle's decisions must be for the sets to be a fair question.
  void Compare(const TinyModel& tiny, const std::vector<int32_t>& prompt, const Selected& methods,
               double clear, double tolerance) {
    SCOPED_TRACE(methods.Spec());
    const RunResult run = RunTiny(tiny.Make(), prompt, *backend_, {.spec = methods.Spec(), .decode = kSteps});
    std::vector<int32_t> text = prompt;
    text.insert(text.end(), run.generated.begin(), run.generated.end());
    const oracle::Result want = oracle::Llama(tiny).Run(text, prompt.size(), methods.slim, methods.ftp);
    ASSERT_GT(want.margin, clear) << "no fair question: scores nearly tie";
    for (size_t l = 0; l < want.cached.size(); ++l) {
      Positions cached = PositionsOf(run.state.cache[l]);
      cached.resize(cached.size() - kSteps);
      EXPECT_EQ(cached, want.cached[l]) << "keys of layer " << l;
      EXPECT_EQ(run.ffn[l], want.ffn[l]) << "FFN of layer " << l;
      EXPECT_EQ(run.state.ledger.layers()[l].kv_rows, static_cast<int64_t>(want.cached[l].size()));
      EXPECT_EQ(run.state.ledger.layers()[l].ffn_rows, static_cast<int64_t>(want.ffn[l].size()));
    }
    for (size_t step = 0; step <= kSteps; ++step) {
      const oracle::Row& row = want.logits[prompt.size() - 1 + step];
      for (size_t i = 0; i < row.size(); ++i) {
        ASSERT_NEAR(run.logits[step][i], row[i], tolerance) << "step " << step << " token " << i;
      }
    }
  }

  std::unique_ptr<Backend> backend_;
};

// Random weights: dozens of scores near each other, which fp32 must still order as fp64 does.
TEST_P(Oracle, RandomModelInFp32) {
  if (!arithmetic().exact) GTEST_SKIP() << "sets are only compared where scores are exact, or far apart";
  const TinyModel tiny = MakeTiny({.interleaved = interleaved(), .seed = 3});
  for (const int64_t tokens : {200, 256}) {
    SCOPED_TRACE(tokens);
    for (const Selected& methods : kMethods) Compare(tiny, RandomPrompt(tokens, 50), methods, 1e-6, 1e-4);
    Compare(tiny, RandomPrompt(tokens, 50), kPerToken, 1e-6, 1e-4);
  }
}

TEST_P(Oracle, NeedleModel) {
  const TinyModel tiny = MakeNeedle({.interleaved = interleaved(), .seed = 6});
  for (const int64_t tokens : {200, 256}) {
    SCOPED_TRACE(tokens);
    for (const Selected& methods : kMethods) {
      Compare(tiny, NeedlePrompt(tokens), methods, 0.02, arithmetic().exact ? 1e-4 : 3e-2);
    }
  }
}

// The needles do what they are for: SlimInfer keeps their blocks, FTP their FFN.
TEST_P(Oracle, NeedlesAreFound) {
  const TinyModel tiny = MakeNeedle({.interleaved = interleaved(), .seed = 6});
  const std::vector<int32_t> prompt = NeedlePrompt(256);
  const RunResult run = RunTiny(tiny.Make(), prompt, *backend_, {.spec = kMethods[3].Spec()});
  int found = 0;
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] < kFirstNeedle + 6) continue;  // the two strongest: what the last budget has room for
    ++found;
    EXPECT_TRUE(Has(run.kept[3], static_cast<int32_t>(i))) << "needle " << prompt[i] << " at " << i;
    EXPECT_TRUE(Has(run.ffn[1], static_cast<int32_t>(i))) << "needle " << prompt[i] << " at " << i;
  }
  EXPECT_EQ(found, 2);
}

INSTANTIATE_TEST_SUITE_P(Backends, Oracle, testing::Combine(testing::ValuesIn(kArithmetics), testing::Bool()),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) +
                                  (std::get<1>(test.param) ? "_interleaved" : "_halves");
                         });

}  // namespace
}  // namespace coppice
