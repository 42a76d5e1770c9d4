// Where the time to the first token goes, by kind of operation.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "eval/report/figures/figures.h"
#include "kernels/timed_backend.h"

namespace coppice {

namespace {

// In the order of kOpKindNames, then the rest.
constexpr const char* kNames[] = {"packing weights", "matrix products", "products of one row",
                                  "attention",       "scoring tokens",  "norms, sums, activations",
                                  "choosing tokens", "layers' states",  "the rest"};
constexpr int kPartColours[] = {7, 1, 6, 2, 4, 3, 5, 0, 8};
constexpr size_t kParts = std::size(kNames);
static_assert(kParts == kOpKindNames.size() + 1);

// Milliseconds by part; empty where they were not recorded.
std::vector<double> PartsOf(const ResultRow& row) {
  if (!row.parts_ms || !std::isfinite(row.ttft_ms)) return {};
  std::vector<double> parts(row.parts_ms->ms.begin(), row.parts_ms->ms.end());
  const double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
  // A mean and a median do not add up exactly.
  parts.push_back(std::max(row.ttft_ms - sum, 0.0));
  return sum > 0 ? parts : std::vector<double>{};
}

// Shares of dense's time to first token, the mean over tasks of a length. Dense's time here is the sum of its
// parts, so that its bar ends at 100 %.
std::vector<double> SharesOf(const ReportData& data, int64_t length, size_t arm) {
  std::vector<double> mean(kParts);
  double count = 0;
  for (const size_t g : data.Shared(&ResultRow::ttft_ms, length)) {
    const std::vector<double> parts = PartsOf(data.Row(g, arm));
    const std::vector<double> dense = PartsOf(data.Row(g, 0));
    if (parts.empty() || dense.empty()) continue;
    const double whole = std::accumulate(dense.begin(), dense.end(), 0.0);
    for (size_t i = 0; i < kParts; ++i) mean[i] += parts[i] / whole;
    ++count;
  }
  if (count == 0) return {};
  for (double& x : mean) x /= count;
  return mean;
}

bool AddPanel(const ReportData& data, int64_t length, std::vector<DrawPanel>& panels, Figure& figure) {
  BarChart chart{
      .title = length == 0 ? "texts' own length" : CountText(static_cast<double>(length)) + " tokens",
      .stacked = true};
  double most = 1;
  for (size_t a = 0; a < data.arms().size(); ++a) {
    const std::vector<double> shares = SharesOf(data, length, a);
    if (shares.empty()) continue;
    BarRow row{.label = data.arms()[a].name};
    std::vector<std::string> numbers = {chart.title, row.label};
    double sum = 0;
    for (size_t i = 0; i < kParts; ++i) {
      row.bars.push_back({shares[i], kPartColours[i], Fill::kFull,
                          fmt::format("{}: {} {}", row.label, kNames[i], PercentText(shares[i]))});
      numbers.push_back(PercentText(shares[i]));
      sum += shares[i];
    }
    row.end = PercentText(sum);
    most = std::max(most, sum);
    chart.rows.push_back(std::move(row));
    figure.numbers.push_back(std::move(numbers));
  }
  if (chart.rows.empty()) return false;
  // Room for the number behind the longest bar.
  chart.x = {"of dense's time to first token", NiceScale(0, most * 1.08, 8), PercentText};
  chart.guides = {1.0};
  panels.push_back([chart](Svg& svg, const Box& box) { DrawBars(svg, box, chart); });
  return true;
}

}  // namespace

Figure ModuleFigure(const ReportData& data) {
  Figure figure{.id = "modules",
                .title = "Where the time to the first token goes",
                .note =
                    "Time of the prefill by kind of operation, of dense's time to first token at the same "
                    "length; means over tasks.",
                .numbers = {{"length", "method"}}};
  for (const char* name : kNames) figure.numbers.front().emplace_back(name);
  std::vector<int64_t> lengths = data.lengths();
  if (lengths.size() > 2) lengths = {lengths.front(), lengths.back()};
  lengths.push_back(0);
  std::vector<DrawPanel> panels;
  for (const int64_t length : lengths) AddPanel(data, length, panels, figure);
  if (panels.empty()) {
    figure.missing = "the run's samples do not hold times by operation (EngineOptions::time_operations)";
    figure.numbers.clear();
    return figure;
  }
  Layout layout{.panel_height = 26 * static_cast<double>(data.arms().size()) + 8,
                .left_margin = BarChart{}.label_width + 16};
  for (size_t i = 0; i < kParts; ++i)
    layout.legend.push_back({.name = kNames[i], .mark = {kPartColours[i], 0}, .swatch = true});
  SetPicture(figure, std::move(layout), panels);
  return figure;
}

}  // namespace coppice
