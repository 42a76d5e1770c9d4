// The share of attention at the prompt's end that goes to the best tokens: FTP's figure 6.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "eval/report/figures/figures.h"
#include "eval/trace_sums.h"

namespace coppice {

namespace {

using Curves = std::vector<std::vector<double>>;  // [layers - 1][kMassPoints]

// Empty where it was not recorded.
Curves CurvesOf(const ResultRow& row) {
  const auto is_whole = [](const std::vector<double>& curve) { return curve.size() == kMassPoints; };
  const Curves& curves = row.attention_mass;
  return std::all_of(curves.begin(), curves.end(), is_whole) ? curves : Curves();
}

// Over the tasks of a length, where they have the same number of layers.
Curves MeanCurves(const ReportData& data, int64_t length) {
  Curves sum;
  double count = 0;
  for (size_t g = 0; g < data.groups().size(); ++g) {
    const Curves curves = CurvesOf(data.Row(g, 0));
    if (data.groups()[g].length != length || curves.empty() || (!sum.empty() && sum.size() != curves.size()))
      continue;
    sum.resize(curves.size(), std::vector<double>(kMassPoints));
    for (size_t l = 0; l < curves.size(); ++l) {
      for (size_t i = 0; i < kMassPoints; ++i) sum[l][i] += curves[l][i];
    }
    ++count;
  }
  for (auto& curve : sum) {
    for (double& x : curve) x /= count;
  }
  return sum;
}

Series CurveOf(std::string name, const Mark& mark, const std::vector<double>& curve) {
  Series series{.name = std::move(name), .mark = mark, .points = {{0, 0}}};
  for (size_t i = 0; i < curve.size(); ++i)
    series.points.push_back({static_cast<double>(i + 1) / kMassPoints, curve[i]});
  return series;
}

// Five layers from the first to the last, and the mean of all.
std::vector<Series> SeriesOf(const Curves& curves) {
  constexpr Mark kMarks[] = {{1, 0}, {2, 1}, {3, 3}, {5, 4}, {6, 6}};
  std::vector<Series> series;
  size_t before = SIZE_MAX;
  for (size_t i = 0; i < 5; ++i) {
    const size_t layer = (curves.size() - 1) * i / 4;
    if (layer == before) continue;
    before = layer;
    series.push_back(CurveOf(fmt::format("layer {}", layer), kMarks[i], curves[layer]));
  }
  std::vector<double> mean(kMassPoints);
  for (const auto& curve : curves) {
    for (size_t i = 0; i < kMassPoints; ++i) mean[i] += curve[i] / static_cast<double>(curves.size());
  }
  series.push_back(CurveOf("mean of all layers", {0, 0}, mean));
  return series;
}

}  // namespace

Figure AttentionMassFigure(const ReportData& data) {
  Figure figure{
      .id = "attention-mass",
      .title = "Cumulative attention mass",
      .note =
          "Of the softmax mass that the prompt's last 50 queries give, the share that the best tokens hold, "
          "best first; the dense model, over all heads. The dashed line is at 95 %.",
      .numbers = {{"tokens", "layer", "of the tokens", "of the mass"}}};
  std::vector<int64_t> lengths = data.lengths();
  if (lengths.size() > 2) lengths = {lengths.front(), lengths.back()};
  lengths.push_back(0);
  std::vector<DrawPanel> panels;
  std::vector<LegendEntry> legend;
  for (const int64_t length : lengths) {
    const Curves curves = MeanCurves(data, length);
    if (curves.empty() || panels.size() == 2) continue;
    const std::string where =
        length == 0 ? "texts' own length" : CountText(static_cast<double>(length)) + " tokens";
    Plot plot{.title = where,
              .x = {"of the tokens", NiceScale(0, 1), PercentText},
              .y = {"of the mass", NiceScale(0, 1), PercentText},
              .series = SeriesOf(curves),
              .guides = {0.95}};
    for (const Series& series : plot.series) {
      if (panels.empty()) legend.push_back({.name = series.name, .mark = series.mark, .curve = true});
      for (size_t i = 1; i < series.points.size(); ++i)
        figure.numbers.push_back(
            {where, series.name, PercentText(series.points[i].x), Cell(series.points[i].y, PercentText)});
    }
    panels.push_back([plot](Svg& svg, const Box& box) { DrawPlot(svg, box, plot); });
  }
  if (panels.empty()) {
    figure.missing = "the run's samples were recorded without attention mass; run it anew";
    figure.numbers.clear();
    return figure;
  }
  SetPicture(figure, {.columns = 2, .legend = std::move(legend)}, panels);
  return figure;
}

}  // namespace coppice
