#include "eval/report/chart.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "eval/report/svg_test_support.h"

namespace coppice::chart_test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr Box kBox{.left = 100, .top = 20, .width = 200, .height = 100};

TEST(Chart, PointsStandWhereTheirNumbersSay) {
  Svg svg("c", 400, 200, "t", "d");
  DrawPlot(svg, kBox,
           {.x = {"x", NiceScale(0, 10)},
            .y = {"y", NiceScale(0, 1), PercentText},
            .series = {{.name = "a", .mark = {2, 0}, .points = {{0, 0}, {5, 1}, {10, 0.25}}}},
            .guides = {0.5, 7}});
  const std::string text = svg.Element();
  EXPECT_THAT(text, HasSubstr("d=\"M100 120L200 20L300 95\" class=\"curve c2\""));
  EXPECT_THAT(text, HasSubstr("<title>a: x 10, y 25 %</title>"));
  EXPECT_THAT(text, HasSubstr("y1=\"70\" x2=\"300\" y2=\"70\" class=\"guide\""));
  EXPECT_EQ(text.find("class=\"guide\""), text.rfind("class=\"guide\"")) << "7 is outside";
}

TEST(Chart, WhatIsNotFiniteOrOutsideIsLeftOut) {
  Svg svg("c", 400, 200, "t", "d");
  DrawPlot(svg, kBox,
           {.x = {"x", NiceScale(0, 10)},
            .y = {"y", NiceScale(0, 1)},
            .series = {{.name = "a", .points = {{0, 0}, {NAN, 1}, {2, INFINITY}, {99, 1}, {10, 1}}}}});
  EXPECT_THAT(svg.Element(), HasSubstr("d=\"M100 120L300 20\""));
  EXPECT_THAT(svg.Element(), Not(HasSubstr("nan")));
}

TEST(Chart, BarsAreAsLongAsTheirNumbers) {
  BarChart chart{.x = {"x", NiceScale(0, 1)},
                 .rows = {{"one", {{0.25, 1, Fill::kFull, ""}, {0.5, 2, Fill::kPale, ""}}, ""}},
                 .stacked = true};
  Svg stacked("c", 400, 200, "t", "d");
  DrawBars(stacked, kBox, chart);
  EXPECT_THAT(stacked.Element(),
              HasSubstr("<rect x=\"100\" y=\"61\" width=\"50\" height=\"18\" class=\"bar c1\"/>"));
  EXPECT_THAT(stacked.Element(),
              HasSubstr("<rect x=\"150\" y=\"61\" width=\"100\" height=\"18\" class=\"bar c2 pale\"/>"));
  chart.stacked = false;
  Svg grouped("c", 400, 200, "t", "d");
  DrawBars(grouped, kBox, chart);
  EXPECT_THAT(grouped.Element(), HasSubstr("<rect x=\"100\" y=\"52\" width=\"50\""));
  EXPECT_THAT(grouped.Element(), HasSubstr("<rect x=\"100\" y=\"70\" width=\"100\""));
}

TEST(Chart, HeatMapsShowSharesAndGaps) {
  Svg svg("c", 400, 200, "t", "d");
  DrawHeatMap(
      svg, kBox,
      {.columns = {"1k", "2k"}, .rows = {"0 %", "100 %"}, .shares = {{0, 1}, {NAN, 0.5}}, .numbers = true});
  const std::string text = svg.Element();
  EXPECT_THAT(text, HasSubstr("fill=\"" + RampColour(1) + "\"><title>2k, 0 %: 100 %</title>"));
  EXPECT_THAT(text, HasSubstr("class=\"on-light\">100<"));
  EXPECT_THAT(text, HasSubstr("class=\"on-dark\">0<"));
  EXPECT_THAT(text, HasSubstr("class=\"empty\""));
}

TEST(Chart, LabelsOfManyTicksDoNotMeet) {
  for (const size_t count : {3, 17, 80}) {
    Svg svg("c", 400, 200, "t", "d");
    DrawPlot(svg, kBox,
             {.x = {"x", Slots(count), [](double i) { return fmt::format("layer {:.0f}", i); }},
              .y = {"", NiceScale(0, 1)}});
    const std::vector<TextBox> boxes = TextBoxes(svg.Element());
    EXPECT_GT(boxes.size(), 6u);
    for (size_t i = 0; i < boxes.size(); ++i) {
      for (size_t j = 0; j < i; ++j)
        EXPECT_FALSE(Overlap(boxes[i], boxes[j])) << boxes[i].text << ", " << boxes[j].text;
    }
  }
}

TEST(Chart, LegendsWrapWithinThePicture) {
  Layout layout{.id = "l", .title = "t", .description = "d"};
  for (int i = 0; i < 30; ++i)
    layout.legend.push_back(
        {.name = "method number " + std::to_string(i), .mark = {i % kColours, i % kShapes}});
  const Svg svg = DrawLayout(layout, {[](Svg&, const Box&) {}});
  const std::vector<TextBox> boxes = TextBoxes(svg.Element());
  ASSERT_EQ(boxes.size(), 30u);
  for (size_t i = 0; i < boxes.size(); ++i) {
    EXPECT_LE(boxes[i].right, kPictureWidth);
    EXPECT_LE(boxes[i].bottom, svg.height());
    for (size_t j = 0; j < i; ++j) EXPECT_FALSE(Overlap(boxes[i], boxes[j]));
  }
  EXPECT_EQ(MarkupFault(svg.Element()), "");
}

TEST(Chart, PanelsStandBesideAndBelowEachOther) {
  std::vector<Box> boxes;
  const DrawPanel panel = [&](Svg&, const Box& box) { boxes.push_back(box); };
  const Svg svg = DrawLayout({.columns = 2, .panel_height = 100}, {panel, panel, panel});
  ASSERT_EQ(boxes.size(), 3u);
  EXPECT_LT(boxes[0].right(), boxes[1].left);
  EXPECT_EQ(boxes[0].top, boxes[1].top);
  EXPECT_GT(boxes[2].top, boxes[0].bottom());
  EXPECT_EQ(boxes[2].left, boxes[0].left);
  EXPECT_LE(boxes[1].right(), svg.width());
  EXPECT_LE(boxes[2].bottom(), svg.height());
}

TEST(Chart, NamesStandBesidePointsWhereThereIsRoom) {
  Plot plot{.x = {"x", NiceScale(0, 1), PlainText}, .y = {"y", NiceScale(0, 1), PlainText}};
  // Two in one place, one at the right edge, one alone: of those in one place at most four find room.
  for (int i = 0; i < 6; ++i)
    plot.series.push_back({.name = fmt::format("same {}", i), .points = {{0.5, 0.5}}, .labels = true});
  plot.series.push_back({.name = "at the edge", .points = {{1, 0.2}}, .labels = true});
  plot.series.push_back({.name = "quiet", .points = {{0.2, 0.8}}});
  Svg svg("id", 600, 400, "t", "d");
  DrawPlot(svg, {.left = 60, .top = 30, .width = 500, .height = 300}, plot);
  const std::vector<TextBox> boxes = TextBoxes(svg.Element());
  int same = 0;
  for (const TextBox& box : boxes) {
    same += box.text.rfind("same", 0) == 0;
    EXPECT_NE(box.text, "quiet");
    EXPECT_LE(box.right, 566);
    for (const TextBox& other : boxes)
      EXPECT_TRUE(&box == &other || !Overlap(box, other)) << box.text << other.text;
  }
  EXPECT_EQ(same, 4);
  EXPECT_TRUE(
      std::any_of(boxes.begin(), boxes.end(), [](const TextBox& b) { return b.text == "at the edge"; }));
}

}  // namespace
}  // namespace coppice::chart_test
