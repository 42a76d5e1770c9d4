// Times and memory by length of the prompt.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "eval/report/figures/figures.h"

namespace coppice {

namespace {

struct Measure {
  const char* title;
  ReportData::Number number;
  bool bytes;
};

constexpr Measure kMeasures[] = {
    {"Time to first token", &ResultRow::ttft_ms, false},
    {"End to end, prompt and answer", &ResultRow::total_ms, false},
    {"Held at most: keys, values, parked states", &ResultRow::peak_held_bytes, true},
    {"Memory of the process at most", &ResultRow::peak_memory_bytes, true},
};

// The groups of `length` whose tasks were run at every length, so that each point of a line has the same
// tasks.
std::vector<size_t> GroupsAt(const ReportData& data, const std::vector<int64_t>& lengths, int64_t length,
                             ReportData::Number column) {
  std::vector<size_t> groups;
  for (const size_t g : data.Shared(column, length)) {
    const bool everywhere = std::all_of(lengths.begin(), lengths.end(), [&](int64_t other) {
      const std::vector<size_t> there = data.Shared(column, other);
      return std::any_of(there.begin(), there.end(),
                         [&](size_t h) { return data.groups()[h].task == data.groups()[g].task; });
    });
    if (everywhere) groups.push_back(g);
  }
  return groups;
}

double UnitOf(double most, std::string& name) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  double size = 1;
  for (; most / size >= 2048 && unit < 4; ++unit) size *= 1024;
  name = kUnits[unit];
  return size;
}

// False if the rows do not have the measure.
bool AddPanel(const ReportData& data, const Measure& measure, std::vector<DrawPanel>& panels,
              Figure& figure) {
  const std::vector<int64_t> lengths = data.lengths();
  Plot plot{.title = measure.title};
  std::vector<double> all;
  for (size_t a = 0; a < data.arms().size(); ++a) {
    Series series{.name = data.arms()[a].name, .mark = data.arms()[a].mark};
    for (const int64_t length : lengths) {
      const double value = data.Mean(GroupsAt(data, lengths, length, measure.number), a, measure.number);
      if (!std::isfinite(value)) continue;
      series.points.push_back({static_cast<double>(length), value});
      all.push_back(value);
      figure.numbers.push_back({measure.title, series.name, std::to_string(length),
                                measure.bytes ? SizeText(value) : TimeText(value)});
    }
    plot.series.push_back(std::move(series));
  }
  if (all.empty()) return false;
  std::string unit;
  const double size = measure.bytes ? UnitOf(RangeOf(all).high, unit) : 1;
  for (Series& series : plot.series) {
    for (Point& point : series.points) point.y /= size;
  }
  const std::vector<double> ticks(lengths.begin(), lengths.end());
  plot.x = {"tokens of the prompt", ScaleOfValues(ticks), CountText};
  plot.y = {unit, NiceScale(0, RangeOf(all).high / size), measure.bytes ? PlainText : TimeText};
  panels.push_back([plot](Svg& svg, const Box& box) { DrawPlot(svg, box, plot); });
  return true;
}

}  // namespace

Figure LengthFigure(const ReportData& data) {
  Figure figure{.id = "lengths",
                .title = "Times and memory by length",
                .note =
                    "Means over the tasks that were run at every length; both time and memory include the "
                    "answer. The process holds the model's weights, too."};
  if (data.lengths().size() < 2) {
    figure.missing = "it needs the same tasks at two lengths or more, such as 2048, 4096 and 8192";
    return figure;
  }
  figure.numbers = {{"measure", "method", "tokens", "value"}};
  std::vector<DrawPanel> panels;
  for (const Measure& measure : kMeasures) AddPanel(data, measure, panels, figure);
  if (panels.empty()) {
    figure.missing = "no task was run at every one of the lengths";
    figure.numbers.clear();
    return figure;
  }
  SetPicture(figure, {.columns = 2, .panel_height = 220, .left_margin = 78, .legend = ArmLegend(data, true)},
             panels);
  return figure;
}

}  // namespace coppice
