// Score and speed-up along one key of a method, all other keys fixed.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "eval/report/figures/figures.h"

namespace coppice {

namespace {

constexpr size_t kMostSweeps = 12;

// The axis spans at least `least`, so that almost equal values look almost equal.
Plot PlotOf(const ReportData& data, const Sweep& sweep, const char* title, const std::vector<double>& values,
            const NumberText& text, double guide, double least) {
  std::vector<double> all = values;
  all.push_back(guide);
  const Range range = RangeOf(all);
  const double low = std::max(std::min(range.low, range.high - least), 0.0);
  Plot plot{.title = sweep.method,
            .x = {sweep.key, Slots(sweep.values.size()),
                  [names = sweep.values](double i) {
                    return Shortened(names[static_cast<size_t>(std::lround(i))], 110);
                  }},
            .y = {title, NiceScale(low, std::max(range.high, low + least)), text},
            .guides = {guide}};
  Series line{.name = sweep.method, .mark = data.arms()[sweep.arms.front()].mark};
  for (size_t i = 0; i < values.size(); ++i) line.points.push_back({static_cast<double>(i), values[i]});
  plot.series.push_back(std::move(line));
  return plot;
}

}  // namespace

Figure SweepFigure(const ReportData& data) {
  Figure figure{
      .id = "sweeps",
      .title = "Along one setting of a method",
      .note =
          "Methods of the run whose settings differ in one key, its values evenly spaced; the dashed "
          "line is dense. Left the mean score, right the speed-up.",
      .numbers = {{"method", "key", "value", "score", "speed-up"}}};
  const std::vector<size_t> scored = data.Scored();
  std::vector<DrawPanel> panels;
  size_t drawn = 0;
  for (const Sweep& sweep : data.sweeps()) {
    if (scored.empty() || drawn++ == kMostSweeps) break;
    std::vector<double> scores, speeds;
    for (size_t i = 0; i < sweep.arms.size(); ++i) {
      scores.push_back(data.Mean(scored, sweep.arms[i], &ResultRow::score) / 100);
      speeds.push_back(data.GeometricMean(scored, sweep.arms[i], &ResultRow::speed_up));
      figure.numbers.push_back({sweep.method, sweep.key, sweep.values[i], PercentText(scores.back()),
                                Cell(speeds.back(), RatioText)});
    }
    const Plot score = PlotOf(data, sweep, "mean score", scores, PercentText, data.Score(0) / 100, 0.2);
    const Plot speed = PlotOf(data, sweep, "TTFT speed-up", speeds, RatioText, 1, 0.2);
    for (const Plot& plot : {score, speed})
      panels.push_back([plot](Svg& svg, const Box& box) { DrawPlot(svg, box, plot); });
  }
  figure.note += fmt::format(" They are {}.", MeansText(data, scored.size()));
  if (panels.empty()) {
    figure.missing = "it needs methods that differ in one key, such as ftp:eta=0.9 and ftp:eta=0.8";
    figure.numbers.clear();
    return figure;
  }
  SetPicture(figure, {.columns = 2, .panel_height = 170}, panels);
  return figure;
}

}  // namespace coppice
