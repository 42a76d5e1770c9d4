#include "eval/report/sweeps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "eval/report/marks.h"
#include "policies/registry.h"

namespace coppice::sweeps_test {
namespace {

using testing::ElementsAre;

TEST(Sweeps, SpecsThatDifferInOneKeyAreJoined) {
  const std::vector<std::string> given = {"none",
                                          "ftp:eta=0.9,min=0",
                                          "ftp:eta=0.65,min=0",
                                          "ftp:min=0,eta=0.8",
                                          "ftp:dense=2,eta=0.8,min=0",
                                          "lazyllm:keep=0.5"};
  const std::vector<Sweep> sweeps = SweepsOf(given, given);
  ASSERT_EQ(sweeps.size(), 1u);
  EXPECT_EQ(sweeps[0].method, "ftp:min=0");
  EXPECT_EQ(sweeps[0].key, "eta");
  EXPECT_THAT(sweeps[0].values, ElementsAre("0.65", "0.8", "0.9"));
  EXPECT_THAT(sweeps[0].arms, ElementsAre(2, 3, 1));
}

TEST(Sweeps, WhatWasNotGivenStandsAtItsDefault) {
  const std::vector<std::string> given = {"ftp", "ftp:eta=0.8", "ftp:dense=2"};
  const std::vector<std::string> whole = {"ftp:eta=0.9,dense=3", "ftp:eta=0.8,dense=3",
                                          "ftp:eta=0.9,dense=2"};
  const std::vector<Sweep> sweeps = SweepsOf(given, whole);
  ASSERT_EQ(sweeps.size(), 2u);
  EXPECT_EQ(sweeps[0].key, "eta");
  EXPECT_THAT(sweeps[0].values, ElementsAre("0.8", "0.9"));
  EXPECT_THAT(sweeps[0].arms, ElementsAre(1, 0));
  EXPECT_EQ(sweeps[1].key, "dense");
  EXPECT_THAT(sweeps[1].arms, ElementsAre(2, 0));
}

TEST(Sweeps, ListsGoByStagesThenByValue) {
  const std::vector<std::string> given = {"lazyllm:layers=4/6/8", "lazyllm:layers=10", "lazyllm:layers=3/6/8",
                                          "lazyllm:layers=4/6"};
  const std::vector<Sweep> sweeps = SweepsOf(given, given);
  ASSERT_EQ(sweeps.size(), 1u);
  EXPECT_THAT(sweeps[0].values, ElementsAre("10", "4/6", "3/6/8", "4/6/8"));
}

TEST(Sweeps, JoinedMethodsKeepTheirKeysApart) {
  const std::vector<std::string> given = {"sliminfer+ftp:eta=0.9", "sliminfer+ftp:eta=0.8", "ftp:eta=0.8"};
  const std::vector<Sweep> sweeps = SweepsOf(given, given);
  ASSERT_EQ(sweeps.size(), 1u);
  EXPECT_EQ(sweeps[0].key, "ftp.eta");
}

TEST(Sweeps, NamesSayWhatTellsSpecsApart) {
  EXPECT_THAT(ShortNames({"none", "ftp:eta=0.9,min=0", "lazyllm:min=0", "ftp:eta=0.8,min=0", "no : spec"}),
              ElementsAre("dense", "ftp eta=0.9", "lazyllm", "ftp eta=0.8", "no : spec"));
}

TEST(Marks, TheSameMethodAlwaysLooksTheSame) {
  const std::vector<Mark> one = MarksOf({"none", "ftp", "lazyllm:keep=0.5"});
  const std::vector<Mark> other = MarksOf({"lazyllm", "none", "ftp:eta=0.8"});
  EXPECT_EQ(one[0], other[1]);
  EXPECT_EQ(one[1], other[2]);
  EXPECT_EQ(one[2], other[0]);
}

TEST(Marks, NoTwoLookAlike) {
  std::vector<std::string> specs = {"none"};
  for (const MethodInfo& method : Methods()) specs.emplace_back(method.name);
  for (int i = 0; i < 6; ++i) specs.push_back("ftp:eta=0." + std::to_string(i + 1));
  specs.push_back("sliminfer+ftp");
  std::set<std::pair<int, int>> seen;
  for (const Mark& mark : MarksOf(specs)) {
    EXPECT_TRUE(seen.emplace(mark.colour, mark.shape).second) << mark.colour << " " << mark.shape;
    EXPECT_LT(mark.colour, kColours);
  }
  EXPECT_EQ(MarksOf(std::vector<std::string>(20, "ftp")).size(),
            20u);  // more than there are shapes: still drawn
}

TEST(Marks, TheRampGetsLighter) {
  int before = -1;
  for (int i = 0; i <= 20; ++i) {
    const std::string colour = RampColour(i / 20.0);
    const int r = std::stoi(colour.substr(1, 2), nullptr, 16),
              g = std::stoi(colour.substr(3, 2), nullptr, 16),
              b = std::stoi(colour.substr(5, 2), nullptr, 16);
    const int luma = 299 * r + 587 * g + 114 * b;
    EXPECT_GT(luma, before) << i;
    before = luma;
  }
  EXPECT_EQ(RampColour(-1), RampColour(0));
  EXPECT_EQ(RampColour(2), RampColour(1));
}

}  // namespace
}  // namespace coppice::sweeps_test
