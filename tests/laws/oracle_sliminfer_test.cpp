// C13 for SlimInfer while it generates: candidate sets, exchange by overlap, reviving, against the oracle.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "oracle_compass.h"
#include "oracle_sliminfer.h"
#include "oracle_support.h"
#include "oracle_tokens.h"

namespace coppice::oracle_sliminfer_test {
namespace {

class OracleSlimInfer : public OracleTest {
 protected:
  OracleCase Case(const oracle::SlimInfer::Options& o) const {
    std::string spec =
        fmt::format("sliminfer:layers={},keep={},block={},unit={},window={},last={},gamma={},revive={}",
                    fmt::join(o.layers, "/"), fmt::join(o.keep, "/"), o.block, o.unit, o.window, o.last,
                    o.gamma, o.revive ? "aux" : "none");
    if (!o.decode_keep.empty()) spec += fmt::format(",decode_keep={}", fmt::join(o.decode_keep, "/"));
    if (o.revive) spec += fmt::format(",revive_cap={}", o.revive_cap);
    if (o.unit == o.block) spec += o.largest_keys ? ",score=max" : ",score=avg";
    return {.spec = spec + ",min=0",
            .methods = [o] { return MethodsOf<oracle::SlimInfer>(o); },
            .stages = std::set<size_t>(o.layers.begin(), o.layers.end()),
            .cache = OracleCase::Cache::kNothing};
  }
  OracleText CompassText() const {
    return {Named("compass"), MakeCompass({.interleaved = interleaved(), .seed = 8}),
            CompassPrompt(256, 32, 6, 8, 6)};
  }
};

// By revival, its cap, how readily sets are exchanged, and whether a step attends less than prefill kept.
std::vector<oracle::SlimInfer::Options> Variants(const oracle::SlimInfer::Options& base) {
  std::vector<oracle::SlimInfer::Options> all(8, base);
  for (size_t i = 0; i < 5; ++i) all[i].revive = true;
  all[0].revive_cap = 2;
  all[1].revive_cap = 1;
  all[2].gamma = 0.5;
  all[3].decode_keep = base.keep;
  all[4].decode_keep = base.keep;
  all[4].gamma = 0.3;
  all[6].gamma = 1;  // exchanged whenever anything differs
  all[7].revive = true;
  all[7].revive_cap = 1;  // one block in five or six may change: the overlap is below 0.7 if it is not capped
  all[7].gamma = 0.7;
  return all;
}

TEST_P(OracleSlimInfer, RandomModelInFp32) {
  if (!arithmetic().exact) GTEST_SKIP() << "sets are only compared where scores are exact, or far apart";
  const oracle::SlimInfer::Options base{
      .layers = {2, 4}, .keep = {112, 64}, .decode_keep = {80, 48}, .block = 16, .unit = 8, .window = 4};
  for (const auto& o : Variants(base)) Compare(RandomText(200, 3), Case(o));
}

// A tail of two or three blocks, as the prompt ends in them; in the second case it takes the whole budget.
TEST_P(OracleSlimInfer, LongerTailsInFp32) {
  if (!arithmetic().exact) GTEST_SKIP() << "sets are only compared where scores are exact, or far apart";
  oracle::SlimInfer::Options o{.layers = {2, 4},
                               .keep = {112, 96},
                               .decode_keep = {96, 80},
                               .block = 16,
                               .unit = 8,
                               .window = 4,
                               .last = 32,
                               .revive = true};
  for (const int64_t tokens : {192, 193, 200, 207}) Compare(RandomText(tokens, 3), Case(o));
  o.decode_keep = {64, 32};
  o.window = 40;
  Compare(RandomText(200, 3), Case(o));
}

// The papers' ablation of the score: a block's key is the mean, or by channel the maximum, of all its keys.
TEST_P(OracleSlimInfer, PooledBlocksInFp32) {
  if (!arithmetic().exact) GTEST_SKIP() << "sets are only compared where scores are exact, or far apart";
  oracle::SlimInfer::Options o{.layers = {2, 4},
                               .keep = {112, 64},
                               .decode_keep = {80, 48},
                               .block = 16,
                               .unit = 16,
                               .window = 4,
                               .revive = true};
  const RunResult mean = Compare(RandomText(200, 3), Case(o));
  o.largest_keys = true;
  const RunResult largest = Compare(RandomText(200, 3), Case(o));
  EXPECT_NE(mean.kept[1], largest.kept[1]);
}

// SlimInfer and FTP, with blocks that come back. These run the FFN that they were parked before and those of
// all later layers, even where FTP skips FFNs in prefill.
TEST_P(OracleSlimInfer, WithFtpInFp32) {
  if (!arithmetic().exact) GTEST_SKIP() << "sets are only compared where scores are exact, or far apart";
  const oracle::SlimInfer::Options base{
      .layers = {2, 4}, .keep = {112, 64}, .decode_keep = {80, 48}, .block = 16, .unit = 8, .window = 4};
  for (const auto& o : Variants(base)) {
    OracleCase both = Case(o);
    both.spec += "+ftp:eta=0.85,dense=1,first=10,last=8,min=0";
    both.methods = [o] {
      auto methods = MethodsOf<oracle::SlimInfer>(o);
      methods.push_back(std::make_unique<oracle::Ftp>(0.85, 1, 10, 8));
      return methods;
    };
    const RunResult run = Compare(RandomText(200, 3), both);
    EXPECT_LT(run.ffn[1].size(), run.kept[1].size());
    EXPECT_LT(run.ffn[2].size(), run.kept[2].size());
  }
}

// Blocks come back and others go, step after step.
TEST_P(OracleSlimInfer, TurningCompass) {
  const oracle::SlimInfer::Options base{
      .layers = {2, 4}, .keep = {160, 128}, .decode_keep = {128, 96}, .block = 32, .unit = 8, .window = 4};
  const auto variants = Variants(base);
  for (size_t i = 0; i < variants.size(); ++i) {
    const RunResult run = Compare(CompassText(), Case(variants[i]));
    size_t revived = 0;
    for (const auto& step : run.revived) revived += step.size();
    if (i < 2) {
      EXPECT_GE(revived, 64u);
    }
    if (!variants[i].revive) {
      EXPECT_EQ(revived, 0u);
    }
  }
}

COPPICE_ORACLE_ON_BACKENDS(OracleSlimInfer);

}  // namespace
}  // namespace coppice::oracle_sliminfer_test
