#include "eval/trace_sums.h"

#include <gtest/gtest.h>

#include <numeric>

namespace coppice::trace_sums_test {
namespace {

std::vector<int32_t> Positions(int32_t begin, int32_t end) {
  std::vector<int32_t> list(static_cast<size_t>(end - begin));
  std::iota(list.begin(), list.end(), begin);
  return list;
}

// Forty tokens in three layers: all, the first half, the first half in one of two heads.
TraceRecorder Recorded() {
  TraceRecorder recorder;
  recorder.BeginPrefill(3, 40);
  recorder.Layer({.kept = Positions(0, 40)});
  recorder.Layer({.kept = Positions(0, 20)});
  recorder.Layer({.kept = Positions(0, 20), .rows_per_head = 10});
  recorder.EndPrefill({}, 0);
  return recorder;
}

TEST(TraceSums, PlacesAreSharesOfTenths) {
  const std::vector<PlaceRow> places = PlacesOf(Recorded().trace());
  ASSERT_EQ(places.size(), 3u);
  const auto all = AllPlaces(places, 3);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0], std::vector<double>(10, 1.0));
  EXPECT_EQ(all[1], (std::vector<double>{1, 1, 1, 1, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(all[2], (std::vector<double>{.5, .5, .5, .5, .5, 0, 0, 0, 0, 0}));
}

TEST(TraceSums, LayersThatAreAlikeStandOnce) {
  TraceRecorder recorder;
  recorder.BeginPrefill(4, 10, {0, 1, 2, 9});  // a packed prompt: positions are not tokens
  for (int l = 0; l < 4; ++l) recorder.Layer({.kept = Positions(0, 4)});
  recorder.EndPrefill({}, 0);
  const std::vector<PlaceRow> places = PlacesOf(recorder.trace());
  ASSERT_EQ(places.size(), 1u);
  EXPECT_EQ(AllPlaces(places, 4)[3], (std::vector<double>{1, 1, 1, 0, 0, 0, 0, 0, 0, 1}));
}

TEST(TraceSums, PlacesThatFitNoModelAreRefused) {
  const std::vector<double> full(kPlaces, 1.0);
  for (const std::vector<PlaceRow>& bad : std::vector<std::vector<PlaceRow>>{
           {}, {{1, full}}, {{0, full}, {9, full}}, {{0, full}, {-1, full}}, {{0, full}, {0, full}}})
    EXPECT_TRUE(AllPlaces(bad, 3).empty());
}

TEST(TraceSums, UseGrowsWithWhatComesBackAndEndsWhereItRests) {
  TraceRecorder recorder = Recorded();
  const auto step = [&](int32_t position, std::vector<std::pair<int, std::vector<int32_t>>> revived) {
    recorder.BeginStep(position);
    for (const auto& [layer, positions] : revived) recorder.Event(layer, TraceEventKind::kRevived, positions);
    recorder.Event(0, TraceEventKind::kLoaded, std::vector<int32_t>{1});  // was computed before
    recorder.EndStep({});
  };
  step(40, {{1, Positions(20, 26)}, {2, Positions(20, 24)}});
  step(41, {{1, Positions(26, 28)}});
  step(42, {});
  const std::vector<int64_t> prefill = {40, 20, 20};
  const TokenUse use = UseOf(recorder.trace(), prefill);
  EXPECT_EQ(use.all, (std::vector<double>{0.6667, 0.75, 0.7667}));
  EXPECT_EQ(use.last, (std::vector<double>{0.5, 0.6}));
}

TEST(TraceSums, MassCurvesAreOfTheBestFirst) {
  std::vector<float> mass(100, 0.0f);
  mass[70] = 6;
  mass[3] = 2;
  for (size_t i = 10; i < 30; ++i) mass[i] = 0.1f;
  const std::vector<double> curve = MassCurve(mass);
  ASSERT_EQ(curve.size(), 20u);
  EXPECT_EQ(curve[0], 0.83);  // 6 + 2 + 3 x 0.1 of 10
  EXPECT_EQ(curve[4], 1);     // 22 tokens hold all
  EXPECT_EQ(curve[19], 1);
  EXPECT_EQ(MassCurve({}), std::vector<double>(20, 0.0));
}

}  // namespace
}  // namespace coppice::trace_sums_test
