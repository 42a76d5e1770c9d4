#include "eval/paper/paper_drawings.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "eval/trace_sums.h"

namespace coppice {

namespace {

using Grid = std::vector<std::vector<double>>;  // [layers][kPlaces]

bool IsDense(const PaperMethod& method) { return method.specs == std::vector<std::string>{"none"}; }

// The mean of the table's score columns; NaN if one is missing.
double ScoreOf(const PaperTable& table, const PaperRows& rows, const PaperMethod& method) {
  double sum = 0, count = 0;
  for (const PaperGroup& group : table.groups) {
    if (group.average || group.measure != PaperMeasure::kScore) continue;
    sum += CellValue(rows, group, method, PaperMeasure::kScore);
    ++count;
  }
  return count > 0 ? sum / count : NAN;
}

// The rows of a method in the runs of the table's groups, once each.
std::vector<const ResultRow*> RowsOf(const PaperTable& table, const PaperRows& rows,
                                     const PaperMethod& method) {
  std::vector<const ResultRow*> found;
  for (const PaperGroup& group : table.groups) {
    const auto run = rows.find(group.run);
    if (run == rows.end()) continue;
    for (const ResultRow& row : run->second) {
      const auto has = [](const std::vector<std::string>& list, const std::string& item) {
        return std::find(list.begin(), list.end(), item) != list.end();
      };
      if (!has(method.specs, row.prune) || !has(group.tasks, row.task)) continue;
      if (std::find(found.begin(), found.end(), &row) == found.end()) found.push_back(&row);
    }
  }
  return found;
}

// The mean over tasks, step by step; a shorter list continues with its last number.
std::vector<double> MeanUseOfLayer(const std::vector<const ResultRow*>& rows, int layer) {
  std::vector<std::vector<double>> lists;
  size_t longest = 0;
  for (const ResultRow* row : rows) {
    const auto uses = AllUses(row->used_by_step.layers, row->kept_per_layer.size());
    if (static_cast<size_t>(layer) >= uses.size() || uses[static_cast<size_t>(layer)].empty()) continue;
    lists.push_back(uses[static_cast<size_t>(layer)]);
    longest = std::max(longest, lists.back().size());
  }
  std::vector<double> mean(longest);
  for (size_t i = 0; i < longest; ++i) {
    for (const auto& list : lists)
      mean[i] += list[std::min(i, list.size() - 1)] / static_cast<double>(lists.size());
  }
  return mean;
}

size_t StepsOf(const std::vector<const ResultRow*>& rows) {
  double steps = 1;
  for (const ResultRow* row : rows) {
    const double generated = row->generated_tokens;
    steps = std::max(steps, std::isfinite(generated) ? generated - 1 : 0);
  }
  return static_cast<size_t>(std::lround(std::min(steps, 4096.0)));
}

// The share of each place that is left out; zeros where a task of the method leaves out nothing.
Grid MissingOf(const std::vector<const ResultRow*>& rows, Grid ResultRow::*field) {
  Grid sum;
  for (const ResultRow* row : rows) {
    const Grid& grid = row->*field;
    const bool whole =
        std::all_of(grid.begin(), grid.end(), [](const auto& layer) { return layer.size() == kPlaces; });
    if (grid.empty() || !whole || (!sum.empty() && sum.size() != grid.size())) continue;
    sum.resize(grid.size(), std::vector<double>(kPlaces));
    for (size_t l = 0; l < grid.size(); ++l) {
      for (size_t p = 0; p < kPlaces; ++p) sum[l][p] += grid[l][p] / static_cast<double>(rows.size());
    }
  }
  return sum;
}

// Rows of a heat map that would be narrower than a label get a label only every so often.
std::vector<std::string> LayerLabels(size_t layers) {
  const size_t every = layers > 16 ? (layers + 15) / 16 : 1;
  std::vector<std::string> labels;
  for (size_t l = 0; l < layers; ++l) labels.push_back(l % every == 0 ? std::to_string(l) : "");
  return labels;
}

}  // namespace

Svg PaperPicture::Of(Plot plot) const {
  return DrawLayout({.id = "figure-" + table.id,
                     .title = table.title,
                     .description = description,
                     .panel_height = 300,
                     .legend = legend},
                    {[plot = std::move(plot)](Svg& svg, const Box& box) { DrawPlot(svg, box, plot); }});
}

std::optional<Svg> CurvesFigure(const PaperTable& table, const PaperRows& rows) {
  Plot plot;
  std::vector<LegendEntry> legend;
  std::vector<double> x, y = {0, 100};
  for (const PaperMethod& method : table.methods) {
    const double score = ScoreOf(table, rows, method);
    if (!std::isfinite(score)) continue;
    if (IsDense(method)) plot.guides = {score};
    if (!std::isfinite(method.x)) continue;
    auto at = std::find_if(plot.series.begin(), plot.series.end(),
                           [&](const Series& series) { return series.name == method.curve; });
    if (at == plot.series.end()) {
      const auto number = static_cast<int>(plot.series.size());
      const Mark mark{1 + number % (kColours - 1), number % kShapes};
      at = plot.series.insert(at, {.name = method.curve, .mark = mark});
      legend.push_back({.name = method.curve, .mark = mark, .curve = true});
    }
    at->points.push_back({method.x, score});
    x.push_back(method.x);
  }
  if (plot.series.empty()) return std::nullopt;
  for (Series& series : plot.series) {
    std::sort(series.points.begin(), series.points.end(),
              [](const Point& a, const Point& b) { return a.x < b.x; });
  }
  const Range across = RangeOf(x), up = RangeOf(y);
  plot.x = {table.x_title, NiceScale(across.low, across.high, 8), PlainText};
  plot.y = {"score", NiceScale(up.low, up.high), PlainText};
  return PaperPicture{table, "The score along one setting. The dashed line is dense.", legend}.Of(plot);
}

std::optional<Svg> TokenUseOfStages(const PaperTable& table, const PaperRows& rows) {
  const auto method = std::find_if(table.methods.begin(), table.methods.end(),
                                   [](const PaperMethod& m) { return !IsDense(m) && !m.specs.empty(); });
  if (method == table.methods.end()) return std::nullopt;
  const std::vector<const ResultRow*> of_method = RowsOf(table, rows, *method);
  std::map<int, std::string> names;  // by layer
  for (const PaperGroup& group : table.groups) {
    if (group.layer >= 0) names.emplace(group.layer, group.label.substr(0, group.label.find(',')));
  }
  Plot plot;
  std::vector<LegendEntry> legend;
  size_t steps = StepsOf(of_method);
  for (const auto& [layer, name] : names) steps = std::max(steps, MeanUseOfLayer(of_method, layer).size());
  for (const auto& [layer, name] : names) {
    const std::vector<double> use = MeanUseOfLayer(of_method, layer);
    if (use.empty()) continue;
    const auto number = static_cast<int>(plot.series.size());
    Series series{.name = name, .mark = {1 + number % (kColours - 1), number % kShapes}};
    for (size_t i = 0; i <= steps; ++i)
      series.points.push_back({static_cast<double>(i), use[std::min(i, use.size() - 1)]});
    series.symbols = steps <= 24;
    legend.push_back({.name = name, .mark = series.mark, .curve = true});
    plot.series.push_back(std::move(series));
  }
  if (plot.series.empty()) return std::nullopt;
  plot.x = {"tokens generated", NiceScale(0, static_cast<double>(steps), 8), CountText};
  plot.y = {"of the prompt", NiceScale(0, 1), PercentText};
  return PaperPicture{table, "The share of the prompt that each stage's layers have computed.", legend}.Of(
      plot);
}

std::optional<Svg> PlacesFigure(const PaperTable& table, const PaperRows& rows) {
  const bool keys = table.drawing == PaperDrawing::kKeys;
  std::vector<DrawPanel> panels;
  for (const PaperMethod& method : table.methods) {
    const Grid grid = MissingOf(RowsOf(table, rows, method),
                                keys ? &ResultRow::dropped_by_place : &ResultRow::ffn_skipped_by_place);
    if (grid.empty()) continue;
    HeatMap map{.title = method.label, .x_title = "place in the prompt", .y_title = "layer"};
    for (int p = 0; p < kPlaces; ++p) map.columns.push_back(fmt::format("{} %", 100 * p / kPlaces));
    map.rows = LayerLabels(grid.size());
    map.shares = grid;
    panels.push_back([map](Svg& svg, const Box& box) { DrawHeatMap(svg, box, map); });
  }
  if (panels.empty()) return std::nullopt;
  return DrawLayout({.id = "figure-" + table.id,
                     .title = table.title,
                     .description = "By layer and tenth of the prompt. One panel for each method.",
                     .columns = 2,
                     .panel_height = 300,
                     .left_margin = 56,
                     .ramp = true,
                     .ramp_low = keys ? "0 % not computed" : "0 % skip the FFN",
                     .ramp_high = "100 %"},
                    panels);
}

}  // namespace coppice
