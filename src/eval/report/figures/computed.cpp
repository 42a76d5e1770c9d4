// The share of the prompt that each method computes: LazyLLM's "% of prompt tokens computed".
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "eval/report/figures/figures.h"

namespace coppice {

namespace {

double MeanOf(const std::vector<double>& list) {
  if (list.empty()) return NAN;
  return std::accumulate(list.begin(), list.end(), 0.0) / static_cast<double>(list.size());
}

// The share of the prompt's token-layers computed by the end of the answers.
double ByTheEnd(const ReportData& data, size_t arm) {
  double sum = 0, count = 0;
  for (size_t g = 0; g < data.groups().size(); ++g) {
    const std::vector<double>& use = data.Row(g, arm).used_by_step.all;
    if (use.empty() || std::isnan(use.back())) continue;
    sum += use.back();
    ++count;
  }
  return count > 0 ? sum / count : NAN;
}

}  // namespace

Figure ComputedFigure(const ReportData& data) {
  Figure figure{
      .id = "computed",
      .title = "Share of the prompt that is computed",
      .note =
          "Of the prompt's tokens in each layer, those whose keys are computed in prefill and by the "
          "end of the answer (what comes back is computed then), and those whose FFN runs, of the "
          "dense model's; means over layers and tasks."};
  std::vector<size_t> groups(data.groups().size());
  std::iota(groups.begin(), groups.end(), size_t{0});
  BarChart chart{.x = {"of the prompt", NiceScale(0, 1), PercentText}, .guides = {1.0}};
  const double dense_ffn = MeanOf(data.MeanList(groups, 0, &ResultRow::ffn_per_layer));
  figure.numbers = {{"method", "keys in prefill", "keys by the end", "FFN rows"}};
  for (size_t a = 0; a < data.arms().size(); ++a) {
    const ReportArm& arm = data.arms()[a];
    const double keys = MeanOf(data.MeanList(groups, a, &ResultRow::kept_per_layer));
    if (!std::isfinite(keys)) continue;
    const double end = std::max(keys, ByTheEnd(data, a));
    const double ffn = MeanOf(data.MeanList(groups, a, &ResultRow::ffn_per_layer)) / dense_ffn;
    const std::string texts[] = {PercentText(keys), Cell(end, PercentText), Cell(ffn, PercentText)};
    chart.rows.push_back(
        {.label = arm.name,
         .bars = {{keys, arm.mark.colour, Fill::kFull, arm.name + ", keys in prefill: " + texts[0]},
                  {end, arm.mark.colour, Fill::kPale, arm.name + ", keys by the end: " + texts[1]},
                  {ffn, arm.mark.colour, Fill::kOutline, arm.name + ", FFN rows: " + texts[2]}}});
    figure.numbers.push_back({arm.name, texts[0], texts[1], texts[2]});
  }
  if (chart.rows.empty()) {
    figure.missing = "the run's samples do not say what was computed by layer";
    figure.numbers.clear();
    return figure;
  }
  SetPicture(
      figure,
      {.panel_height = 42 * static_cast<double>(chart.rows.size()),
       .left_margin = chart.label_width + 16,
       .legend =
           {{.name = "keys, in prefill", .mark = {8, 0}, .swatch = true},
            {.name = "keys, by the end of the answer", .mark = {8, 0}, .swatch = true, .fill = Fill::kPale},
            {.name = "FFN rows", .mark = {8, 0}, .swatch = true, .fill = Fill::kOutline}}},
      {[chart](Svg& svg, const Box& box) { DrawBars(svg, box, chart); }});
  return figure;
}

}  // namespace coppice
