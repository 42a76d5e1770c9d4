// The share of the prompt's tokens without keys after prefill, by layer and by place in the prompt.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "eval/report/figures/figures.h"
#include "eval/trace_sums.h"

namespace coppice {

namespace {

using Grid = std::vector<std::vector<double>>;  // [layers][kPlaces]

// Empty where the method dropped nothing.
Grid GridOf(const ResultRow& row) {
  const auto is_whole = [](const std::vector<double>& layer) { return layer.size() == kPlaces; };
  const Grid& grid = row.dropped_by_place;
  return std::all_of(grid.begin(), grid.end(), is_whole) ? grid : Grid();
}

// The mean over tasks; tasks in which the method dropped nothing count as zeros. Empty if it never dropped
// any.
Grid DropsOf(const ReportData& data, size_t arm) {
  Grid sum;
  double count = 0;
  for (size_t g = 0; g < data.groups().size(); ++g) {
    if (data.Row(g, arm).task.empty()) continue;
    ++count;
    const Grid grid = GridOf(data.Row(g, arm));
    if (grid.empty() || (!sum.empty() && sum.size() != grid.size())) continue;
    sum.resize(grid.size(), std::vector<double>(kPlaces));
    for (size_t l = 0; l < grid.size(); ++l) {
      for (size_t p = 0; p < kPlaces; ++p) sum[l][p] += grid[l][p];
    }
  }
  for (auto& layer : sum) {
    for (double& share : layer) share /= count;
  }
  return sum;
}

double MeanOfShares(const std::vector<double>& layer) {
  double sum = 0;
  for (const double share : layer) sum += share;
  return sum / static_cast<double>(layer.size());
}

constexpr const char* kNothingDropped =
    "no method of this run drops tokens from layers or caches, as lazyllm and sliminfer do";

}  // namespace

Figure LayerDropFigure(const ReportData& data) {
  Figure figure{
      .id = "drop-by-layer",
      .title = "Drop rate by layer",
      .note =
          "Share of the prompt's tokens that a layer has no keys of after prefill, because they were "
          "never computed there or were deleted; means over tasks.",
      .numbers = {{"method", "layer", "dropped"}}};
  Plot plot;
  plot.y = {"dropped", NiceScale(0, 1), PercentText};
  std::vector<size_t> shown;
  size_t layers = 0;
  for (size_t a = 0; a < data.arms().size(); ++a) {
    const Grid grid = DropsOf(data, a);
    if (grid.empty()) continue;
    shown.push_back(a);
    layers = std::max(layers, grid.size());
    Series series{.name = data.arms()[a].name, .mark = data.arms()[a].mark};
    series.symbols = grid.size() <= 40;
    for (size_t l = 0; l < grid.size(); ++l) {
      series.points.push_back({static_cast<double>(l), MeanOfShares(grid[l])});
      figure.numbers.push_back({series.name, std::to_string(l), PercentText(MeanOfShares(grid[l]))});
    }
    plot.series.push_back(std::move(series));
  }
  if (shown.empty()) {
    figure.missing = kNothingDropped;
    figure.numbers.clear();
    return figure;
  }
  plot.x = {"layer", Slots(layers), CountText};
  SetPicture(figure, {.legend = ArmLegend(data, shown, true)},
             {[plot](Svg& svg, const Box& box) { DrawPlot(svg, box, plot); }});
  return figure;
}

Figure PlaceDropFigure(const ReportData& data) {
  Figure figure{
      .id = "drop-by-place",
      .title = "Drop rate by layer and position",
      .note = "The same by where in the prompt the tokens stand, in tenths from its start to its end.",
      .numbers = {{"method", "layer", "tenth of the prompt", "dropped"}}};
  std::vector<DrawPanel> panels;
  for (size_t a = 0; a < data.arms().size(); ++a) {
    const Grid grid = DropsOf(data, a);
    if (grid.empty()) continue;
    HeatMap map{.title = data.arms()[a].name, .x_title = "place in the prompt", .y_title = "layer"};
    for (int p = 0; p < kPlaces; ++p) map.columns.push_back(fmt::format("{} %", 100 * p / kPlaces));
    for (size_t l = 0; l < grid.size(); ++l) {
      map.rows.push_back(std::to_string(l));
      for (int p = 0; p < kPlaces; ++p)
        figure.numbers.push_back({map.title, std::to_string(l), map.columns[static_cast<size_t>(p)],
                                  PercentText(grid[l][static_cast<size_t>(p)])});
    }
    map.shares = grid;
    panels.push_back([map](Svg& svg, const Box& box) { DrawHeatMap(svg, box, map); });
  }
  if (panels.empty()) {
    figure.missing = kNothingDropped;
    figure.numbers.clear();
    return figure;
  }
  SetPicture(figure,
             {.description = " One panel for each method.",
              .columns = 3,
              .panel_height = 190,
              .left_margin = 56,
              .ramp = true,
              .ramp_low = "0 % dropped",
              .ramp_high = "100 %"},
             panels);
  return figure;
}

}  // namespace coppice
