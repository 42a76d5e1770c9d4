// Score against time to first token, and against FLOPs.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "eval/report/figures/figures.h"

namespace coppice {

namespace {

struct Saving {
  const char* title;
  double (*of)(const ReportData& data, const std::vector<size_t>& groups, size_t arm);
};

double TtftShare(const ReportData& data, const std::vector<size_t>& groups, size_t arm) {
  return 1 / data.GeometricMean(groups, arm, &ResultRow::speed_up);
}
double FlopsShare(const ReportData& data, const std::vector<size_t>& groups, size_t arm) {
  return data.Mean(groups, arm, &ResultRow::flops_ratio);
}

// A point for each arm, and thin lines through the points of a sweep.
void Draw(const ReportData& data, const std::vector<size_t>& groups, const Saving& saving, Figure& figure) {
  std::vector<double> xs, ys;
  std::vector<Point> points;
  for (size_t a = 0; a < data.arms().size(); ++a) {
    const Interval interval = data.MeanInterval(groups, a);
    const Point point{saving.of(data, groups, a), data.Mean(groups, a, &ResultRow::score) / 100,
                      interval.low / 100, interval.high / 100};
    points.push_back(point);
    xs.push_back(point.x);
    ys.insert(ys.end(), {point.y, point.low, point.high});
    figure.numbers.push_back({data.arms()[a].name, Cell(point.x, PercentText),
                              fmt::format("{:.1f}", 100 * point.y), IntervalText(interval)});
  }
  const Range x = RangeOf(xs), y = RangeOf(ys);
  Plot plot{.x = {saving.title, NiceScale(std::min(x.low, 0.8), std::max(x.high, 1.0), 8), PercentText},
            .y = {"mean score", NiceScale(std::max(y.low, 0.0), std::min(y.high, 1.0)), PercentText},
            .guides = {points.front().y}};
  for (const Sweep& sweep : data.sweeps()) {
    Series line{.name = sweep.method, .mark = data.arms()[sweep.arms.front()].mark, .symbols = false};
    for (const size_t a : sweep.arms) line.points.push_back({points[a].x, points[a].y});
    plot.series.push_back(std::move(line));
  }
  for (size_t a = 0; a < data.arms().size(); ++a)
    plot.series.push_back({.name = data.arms()[a].name,
                           .mark = data.arms()[a].mark,
                           .points = {points[a]},
                           .curve = false,
                           .labels = true});
  SetPicture(figure, {.panel_height = 330, .legend = ArmLegend(data, false)},
             {[plot](Svg& svg, const Box& box) { DrawPlot(svg, box, plot); }});
}

Figure Tradeoff(const ReportData& data, Figure figure, const Saving& saving, ReportData::Number column) {
  std::vector<size_t> groups = data.Scored();
  const std::vector<size_t> with = data.Shared(column);
  std::erase_if(groups, [&](size_t g) { return std::find(with.begin(), with.end(), g) == with.end(); });
  if (groups.empty() || data.arms().size() < 2) {
    figure.missing =
        "it needs a task with a score in percent, of which dense answers something, and a method beside "
        "dense";
    return figure;
  }
  figure.note += fmt::format(
      " Points are {}, with 95 % intervals; the dashed line is dense; what differs in one key is joined.",
      MeansText(data, groups.size()));
  figure.numbers = {{"method", saving.title, "score", "95 % interval"}};
  Draw(data, groups, saving, figure);
  return figure;
}

}  // namespace

Figure AccuracyTtftFigure(const ReportData& data) {
  return Tradeoff(data,
                  {.id = "accuracy-ttft",
                   .title = "Accuracy against time to first token",
                   .note = "Further left is sooner, further up is better."},
                  {"TTFT, of dense's", TtftShare}, &ResultRow::speed_up);
}

Figure AccuracyFlopsFigure(const ReportData& data) {
  return Tradeoff(data,
                  {.id = "accuracy-flops",
                   .title = "Accuracy against FLOPs",
                   .note = "FLOPs of the prefill by the ledger; further left is less, further up is better."},
                  {"FLOPs, of dense's", FlopsShare}, &ResultRow::flops_ratio);
}

}  // namespace coppice
