// How much of the prompt has been computed at each step of the answer: LazyLLM's cumulative token use.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "eval/report/figures/figures.h"

namespace coppice {

namespace {

using Part = std::vector<double> TokenUse::*;

constexpr size_t kMostSymbols = 24;  // along a curve

// The mean over tasks; a shorter list continues with its last number.
std::vector<double> MeanUse(const ReportData& data, size_t arm, Part part) {
  std::vector<std::vector<double>> lists;
  size_t longest = 0;
  for (size_t g = 0; g < data.groups().size(); ++g) {
    const std::vector<double>& use = data.Row(g, arm).used_by_step.*part;
    if (use.empty()) continue;
    longest = std::max(longest, use.size());
    lists.push_back(use);
  }
  std::vector<double> mean(longest);
  for (size_t i = 0; i < longest; ++i) {
    for (const auto& list : lists)
      mean[i] += list[std::min(i, list.size() - 1)] / static_cast<double>(lists.size());
  }
  return mean;
}

// Tokens of the longest answers.
size_t StepsOf(const ReportData& data) {
  double steps = 1;
  for (size_t g = 0; g < data.groups().size(); ++g) {
    for (size_t a = 0; a < data.arms().size(); ++a) {
      const double generated = data.Row(g, a).generated_tokens;
      steps = std::max(steps, std::isfinite(generated) ? generated - 1 : 0);
    }
  }
  return static_cast<size_t>(std::lround(std::min(steps, 4096.0)));
}

bool ComputesAllAtOnce(const std::vector<double>& use) {
  return std::all_of(use.begin(), use.end(), [](double share) { return share >= 1 - 1e-9; });
}

// Whether a line of its own says more than dense's.
bool IsShown(const ReportData& data, size_t arm) {
  const std::vector<double> all = MeanUse(data, arm, &TokenUse::all),
                            last = MeanUse(data, arm, &TokenUse::last);
  return arm == 0 || !ComputesAllAtOnce(all) || !ComputesAllAtOnce(last);
}

bool AddPanel(const ReportData& data, const char* title, Part part, std::vector<DrawPanel>& panels,
              Figure& figure) {
  size_t steps = StepsOf(data);
  for (size_t a = 0; a < data.arms().size(); ++a) steps = std::max(steps, MeanUse(data, a, part).size());
  Plot plot{.title = title,
            .x = {"tokens generated", NiceScale(0, static_cast<double>(steps), 8), CountText},
            .y = {"of the prompt", NiceScale(0, 1), PercentText}};
  const size_t stride = (steps + kMostSymbols - 1) / kMostSymbols;
  bool any = false;
  for (size_t a = 0; a < data.arms().size(); ++a) {
    const std::vector<double> use = MeanUse(data, a, part);
    if (use.empty() || (a > 0 && ComputesAllAtOnce(use))) continue;
    any = true;
    Series series{.name = data.arms()[a].name, .mark = data.arms()[a].mark};
    for (size_t i = 0; i <= steps; i += stride)
      series.points.push_back({static_cast<double>(i), use[std::min(i, use.size() - 1)]});
    figure.numbers.push_back(
        {title, series.name, Cell(use.front(), PercentText), Cell(use.back(), PercentText)});
    plot.series.push_back(std::move(series));
  }
  if (any) panels.push_back([plot](Svg& svg, const Box& box) { DrawPlot(svg, box, plot); });
  return any;
}

}  // namespace

Figure TokenUseFigure(const ReportData& data) {
  Figure figure{.id = "token-use",
                .title = "Cumulative token use while the answer is generated",
                .note =
                    "Share of the prompt whose keys have been computed, in prefill or because a step brought "
                    "tokens back. Dense, and methods that are not shown, compute all at once. An answer that "
                    "ends goes on as a level line.",
                .numbers = {{"where", "method", "after prefill", "at the end"}}};
  std::vector<DrawPanel> panels;
  const bool all = AddPanel(data, "In all layers", &TokenUse::all, panels, figure);
  const bool last = AddPanel(data, "In the last layer", &TokenUse::last, panels, figure);
  if (!all && !last) {
    figure.missing = "the run's samples were recorded without what each step computed; run it anew";
    figure.numbers.clear();
    return figure;
  }
  std::vector<size_t> shown;
  for (size_t a = 0; a < data.arms().size(); ++a) {
    if (IsShown(data, a)) shown.push_back(a);
  }
  SetPicture(figure, {.columns = 2, .legend = ArmLegend(data, shown, true)}, panels);
  return figure;
}

}  // namespace coppice
