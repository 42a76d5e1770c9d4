#include "policies/methods/ftp.h"

#include <gtest/gtest.h>

#include "policies/method_test_support.h"
#include "policy_scene.h"
#include "special_floats.h"

namespace coppice {
namespace {

using Rows = std::vector<int32_t>;

// What FTP keeps of `middle`, between two protected rows before and three after it, as indices of the middle.
Rows Selected(const std::vector<float>& middle, double eta) {
  const auto n = static_cast<int64_t>(middle.size());
  Scene scene(n + 5);
  std::vector<float> mass(static_cast<size_t>(n) + 5, 100.0f);  // the ends' mass must not count
  std::copy(middle.begin(), middle.end(), mass.begin() + 2);
  scene.Mass(3, mass);
  FtpPolicy ftp({.eta = eta, .dense = 10, .first = 2, .num_queries = 3});
  const TokenSet set = ftp.RunFfn(scene.seen, *scene.be);
  EXPECT_EQ(set.universe(), n + 5);
  Rows rows;
  for (const int32_t row : set.ToRows()) {
    if (row >= 2 && row < n + 2) rows.push_back(row - 2);
  }
  EXPECT_EQ(set.size(), static_cast<int64_t>(rows.size()) + 5);  // T-FT3
  return rows;
}

// By hand.
TEST(FtpPolicy, WorkedExamples) {
  const std::vector<float> s = {5, 1, 3, 3, 8, 2, 2, 6};
  EXPECT_EQ(Selected(s, 0.5), (Rows{0, 4, 7}));
  EXPECT_EQ(Selected(s, 0.7), (Rows{0, 2, 4, 7}));
  EXPECT_EQ(Selected(s, 0.8), (Rows{0, 2, 3, 4, 7}));
  EXPECT_EQ(Selected(s, 0.9), (Rows{0, 2, 3, 4, 5, 7}));  // 27 >= 27: the paper's ">" would add row 6
  EXPECT_EQ(Selected(s, 1.0), (Rows{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(Selected({4, 3, 2, 1}, 0.7), (Rows{0, 1}));
  EXPECT_EQ(Selected({4, 3, 2, 1}, 0.9), (Rows{0, 1, 2}));
}

// T-FT6 and T-FT7 on irregular masses.
TEST(FtpPolicy, IsMinimalAndGrowsWithEta) {
  std::vector<float> s;
  uint32_t state = 1;
  double total = 0;
  for (int i = 0; i < 300; ++i) {
    state = state * 1664525u + 1013904223u;
    s.push_back(static_cast<float>(state >> 20) / 4096.0f + (i % 3 == 0 ? 0.0f : 1e-3f));
    total += s.back();
  }
  Rows before;
  for (const double eta : {1e-6, 0.01, 0.1, 0.3, 0.5, 0.77, 0.9, 0.99, 0.999}) {
    const Rows now = Selected(s, eta);
    double mass = 0;
    float smallest = kInf;
    for (const int32_t i : now) {
      mass += s[static_cast<size_t>(i)];
      smallest = std::min(smallest, s[static_cast<size_t>(i)]);
    }
    EXPECT_GE(mass, eta * total * (1 - 1e-12)) << eta;
    EXPECT_LT(mass - smallest, eta * total) << eta;
    EXPECT_TRUE(std::includes(now.begin(), now.end(), before.begin(), before.end())) << eta;
    before = now;
  }
}

TEST(FtpPolicy, TiesGoToTheEarlier) {
  EXPECT_EQ(Selected({1, 1, 1, 1, 1, 1, 1, 1}, 0.5), (Rows{0, 1, 2, 3}));
  EXPECT_EQ(Selected({1, 2, 2, 1, 2}, 0.5), (Rows{1, 2}));
  EXPECT_EQ(Selected({0, 0, 0}, 0.5), (Rows{0, 1, 2}));  // no mass says nothing: keep
}

TEST(FtpPolicy, StrangeScoresKeepTheEnds) {
  EXPECT_EQ(Selected({kNan, 4, kNan, 1}, 0.5), (Rows{1}));
  EXPECT_EQ(Selected({kNan, kNan}, 0.5), (Rows{0, 1}));
  Selected({-kInf, 1, 2}, 0.5);  // its own expectations: no crash, the ends stay
  Selected({-kInf, -kInf}, 0.9);
  Selected({kInf, 1, kInf}, 0.9);
}

TEST(FtpPolicy, ShortStreamsRunWhole) {
  FtpPolicy ftp({.eta = 0.5, .dense = 10, .first = 2, .num_queries = 3});
  for (int64_t rows = 1; rows <= 5; ++rows) {  // at most P + Nq; no mass is read
    Scene scene(rows);
    EXPECT_TRUE(ftp.RunFfn(scene.seen, *scene.be).IsAll()) << rows;
  }
  Scene six(6);
  six.Mass(3, std::vector<float>(6, 1.0f));
  EXPECT_TRUE(ftp.RunFfn(six.seen, *six.be).IsAll());  // a middle of one row is its own smallest set
}

// T-FT2, T-FT5, T-FT8: nothing is observed or dropped below layer F or at eta = 1; in decode nothing is
// observed, and RunFfn is not asked.
TEST(FtpPolicy, DenseWhereItShouldBe) {
  FtpPolicy ftp({.eta = 0.5, .dense = 10, .first = 2, .num_queries = 3});
  FtpPolicy whole({.eta = 1, .dense = 10, .first = 2, .num_queries = 3});
  EXPECT_TRUE(ftp.NeedsAt(Phase::kPrefill, 9).empty());
  EXPECT_EQ(ftp.NeedsAt(Phase::kPrefill, 10).masses, std::vector<Needs::Mass>{{.queries = 3}});
  EXPECT_TRUE(ftp.NeedsAt(Phase::kPrefill, 10).unit_scores.empty());
  EXPECT_TRUE(whole.NeedsAt(Phase::kPrefill, 20).empty());

  Scene below(50, 9);
  EXPECT_TRUE(ftp.RunFfn(below.seen, *below.be).IsAll());
  Scene there(50, 10);
  there.Mass(3, std::vector<float>(50, 1.0f));
  EXPECT_FALSE(ftp.RunFfn(there.seen, *there.be).IsAll());
  EXPECT_TRUE(ftp.AfterAttention(there.seen, *there.be).IsAll());
  EXPECT_TRUE(ftp.BeforeLayer(there.seen, *there.be).IsAll());
  EXPECT_TRUE(whole.RunFfn(there.seen, *there.be).IsAll());
  for (int layer = 0; layer < 32; ++layer) EXPECT_TRUE(ftp.NeedsAt(Phase::kDecode, layer).empty());
}

// The control of the paper's table 3: as many rows in every layer, others.
TEST(FtpPolicy, TheRandomControlTakesAsMany) {
  const auto answer = [](bool random, uint64_t seed, int layer) {
    Scene scene(400, layer);
    std::vector<float> mass(400);
    for (size_t i = 0; i < mass.size(); ++i) mass[i] = static_cast<float>((i * 37 + 11) % 101);
    scene.Mass(3, mass);
    FtpPolicy ftp({.eta = 0.6, .dense = 10, .first = 2, .num_queries = 3, .random = random, .seed = seed});
    return ftp.RunFfn(scene.seen, *scene.be);
  };
  const TokenSet by_mass = answer(false, 0, 20);
  const TokenSet by_lot = answer(true, 0, 20);
  EXPECT_EQ(by_lot.size(), by_mass.size());
  EXPECT_LT(by_lot.Intersect(by_mass).size(), by_mass.size() * 3 / 4);
  for (const int32_t end : {0, 1, 397, 398, 399}) EXPECT_TRUE(by_lot.Contains(end)) << end;
  EXPECT_EQ(answer(true, 0, 20), by_lot);
  EXPECT_NE(answer(true, 1, 20), by_lot);
  EXPECT_NE(answer(true, 0, 21), by_lot);
  EXPECT_EQ(answer(false, 1, 21), by_mass);
}

TEST(FtpMethod, TheControlInTheSettings) {
  EXPECT_EQ(SettingsOf(FtpMethod(), "ftp:choose=random,seed=5"),
            "ftp:eta=0.9,dense=10,first=100,last=50,queries=50,ask=end,pool=mean,skip_sink=0,widen=0,sum=1,"
            "whole=none,fill="
            "none,choose=random,seed=5,min=1024");
  EXPECT_EQ(SettingsOf(FtpMethod(), "ftp"),
            "ftp:eta=0.9,dense=10,first=100,last=50,queries=50,ask=end,pool=mean,skip_sink=0,widen=0,sum=1,"
            "whole=none,fill="
            "none,choose=mass,seed=0,min=1024");
  EXPECT_NE(RefusalOf(FtpMethod(), "ftp:choose=best").find("it can be mass, random"), std::string::npos);
}

// Among the survivors of another method P is a limit on positions: of rows at 0, 1, 7, ... two lie below 5.
TEST(FtpPolicy, FirstIsAPositionAndNotARow) {
  Scene scene({0, 1, 7, 8, 20, 21, 22, 30, 31}, 32, 20);
  scene.Mass(2, {9, 9, 1, 5, 1, 2, 1, 9, 9});
  FtpPolicy ftp({.eta = 0.5, .dense = 10, .first = 5, .num_queries = 2});
  EXPECT_EQ(ftp.RunFfn(scene.seen, *scene.be).ToRows(), (Rows{0, 1, 3, 7, 8}));
}

TEST(FtpPolicy, ScoresAreSummedOverLayers) {
  FtpPolicy ftp({.eta = 0.5, .dense = 2, .first = 0, .num_queries = 1, .scores = {.queries = 1, .sum = 2}});
  EXPECT_TRUE(ftp.NeedsAt(Phase::kPrefill, 0).empty());
  EXPECT_FALSE(ftp.NeedsAt(Phase::kPrefill, 1).empty());
  const auto run = [&](int layer, const std::vector<float>& mass) {
    Scene scene(static_cast<int64_t>(mass.size()), layer);
    scene.Mass(1, mass);
    return ftp.RunFfn(scene.seen, *scene.be).ToRows();
  };
  EXPECT_EQ(run(1, {9, 0, 0, 0, 0}).size(), 5u);
  EXPECT_EQ(run(2, {0, 8, 0, 0, 0}), (Rows{0, 4}));
  EXPECT_EQ(run(3, {0, 0, 7, 0, 0}), (Rows{1, 4}));
}

}  // namespace
}  // namespace coppice
