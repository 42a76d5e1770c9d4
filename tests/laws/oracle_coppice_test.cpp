// C13 and C14 for the engine's own method, in prefill and in every step: against the oracle that only masks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "oracle_compass.h"
#include "oracle_coppice.h"
#include "oracle_support.h"

namespace coppice::oracle_coppice_test {
namespace {

class OracleCoppice : public OracleTest {
 protected:
  static OracleCase Case(const oracle::Coppice::Settings& set) {
    std::string layers, keep, mass, queries, pool, widen, ask;
    std::set<size_t> stages;
    for (const oracle::Coppice::Stage& s : set.stages) {
      const char* slash = layers.empty() ? "" : "/";
      layers += fmt::format("{}{}", slash, s.layer);
      keep += fmt::format("{}{}", slash, s.keep);
      mass += fmt::format("{}{}", slash, s.mass);
      queries += fmt::format("{}{}", slash, s.queries);
      pool += fmt::format("{}{}", slash, s.strongest ? "max" : "mean");
      widen += fmt::format("{}{}", slash, s.widen);
      ask += fmt::format("{}{}", slash, s.of_question ? "question" : "end");
      stages.insert(s.layer);
    }
    return {.spec = fmt::format(
                "coppice:layers={},keep={},mass={},queries={},pool={},widen={},ask={},skip_sink={},sink={},"
                "floor={},last={},revive_mass={},revive_cap={},min=0",
                layers, keep, mass, queries, pool, widen, ask, set.skip_sink, set.sink, set.floor, set.last,
                set.revive_mass, set.revive_cap),
            .methods = [set] { return MethodsOf<oracle::Coppice>(set); },
            .stages = stages,
            .question =
                set.question.end > 0 ? std::vector<PositionSpan>{set.question} : std::vector<PositionSpan>{}};
  }
  static size_t Revived(const RunResult& run) {
    size_t revived = 0;
    for (const auto& step : run.revived) revived += step.size();
    return revived;
  }
};

TEST_P(OracleCoppice, RandomModelInFp32) {
  if (!arithmetic().exact) GTEST_SKIP() << "sets are only compared where scores are exact, or far apart";
  const OracleText text = RandomText(200, 3);
  const RunResult run = Compare(
      text,
      Case({.stages = {{2, 0.5, 8, true, 3, false}, {4, 0.25, 1, false, 1, false}}, .revive_mass = 0.02}));
  EXPECT_EQ(run.kept[2].size(), 100u);
  EXPECT_EQ(run.kept[4].size(), 50u);
  EXPECT_GT(Revived(run), 50u);
  // The floor is above the second stage's share.
  const RunResult floored = Compare(
      text, Case({.stages = {{2, 0.5, 8, true, 3, false}, {4, 0.25, 1, false, 1, false}}, .floor = 80}));
  EXPECT_EQ(floored.kept[2].size(), 100u);
  EXPECT_EQ(floored.kept[4].size(), 80u);
  // Parked tokens hold less than all of the attention: nothing comes back.
  EXPECT_EQ(Revived(Compare(text, Case({.stages = {{3, 0.4, 8, true, 2, false}}, .revive_mass = 1}))), 0u);
}

// The attention decides how many stay, below the share and above the floor.
TEST_P(OracleCoppice, AShareOfTheAttentionInFp32) {
  if (!arithmetic().exact) GTEST_SKIP() << "sets are only compared where scores are exact, or far apart";
  const OracleText text = RandomText(200, 3);
  const oracle::Coppice::Settings set{
      .stages = {{2, 1, 8, true, 3, false, 0.6}, {4, 0.4, 1, false, 1, false, 0.5}}, .revive_mass = 0.02};
  const RunResult run = Compare(text, Case(set));
  EXPECT_LT(run.kept[2].size(), 170u);
  EXPECT_GT(run.kept[2].size(), 60u);
  EXPECT_LT(run.kept[4].size(), 80u) << "fewer than the share";
  oracle::Coppice::Settings floored = set;
  floored.floor = 79;
  EXPECT_EQ(Compare(text, Case(floored)).kept[4].size(), 79u);
  oracle::Coppice::Settings full = set;
  full.stages = {{2, 0.25, 8, true, 3, false, 0.9}};
  EXPECT_EQ(Compare(text, Case(full)).kept[2].size(), 50u) << "the share is less";
}

// The question stands before the document: its queries score as if they were asked at the end.
TEST_P(OracleCoppice, AQuestionInFrontInFp32) {
  if (!arithmetic().exact) GTEST_SKIP() << "sets are only compared where scores are exact, or far apart";
  const OracleText text = RandomText(200, 5);
  for (const PositionSpan question : {PositionSpan{10, 30}, PositionSpan{150, 190}}) {
    const RunResult run =
        Compare(text, Case({.stages = {{2, 0.5, 16, true, 2, true}, {4, 0.3, 4, false, 0, true}},
                            .revive_mass = 0.02,
                            .question = question}));
    for (int64_t p = question.end - 8; p < question.end; ++p)
      EXPECT_TRUE(std::binary_search(run.kept[4].begin(), run.kept[4].end(), p)) << p;
  }
}

COPPICE_ORACLE_ON_BACKENDS(OracleCoppice);

}  // namespace
}  // namespace coppice::oracle_coppice_test
