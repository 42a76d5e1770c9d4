// Needle in a haystack: the share found, by length of the text and depth of the needle.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "eval/report/figures/figures.h"

namespace coppice {

namespace {

// Shares found by depth in percent, of a task at one length.
std::map<int, double> DepthsOf(const ResultRow& row) {
  std::map<int, double> depths;
  for (const DepthScore& place : row.by_depth) {
    if (std::isfinite(place.depth) && std::isfinite(place.score))
      depths[static_cast<int>(std::lround(100 * place.depth))] = place.score / 100;
  }
  return depths;
}

// niah if it was run; else the first task whose answers are in one place each.
std::string TaskOf(const ReportData& data) {
  std::string task;
  for (size_t g = 0; g < data.groups().size(); ++g) {
    if (DepthsOf(data.Row(g, 0)).empty()) continue;
    if (data.groups()[g].task == "niah") return "niah";
    if (task.empty()) task = data.groups()[g].task;
  }
  return task;
}

HeatMap MapOf(const ReportData& data, const std::vector<size_t>& groups, const std::set<int>& depths,
              size_t arm) {
  HeatMap map{.title = data.arms()[arm].name, .x_title = "tokens", .y_title = "depth", .numbers = true};
  for (const int depth : depths) map.rows.push_back(fmt::format("{} %", depth));
  map.shares.assign(depths.size(), {});
  for (const size_t g : groups) {
    const int64_t length = data.groups()[g].length;
    map.columns.push_back(length == 0 ? "own" : CountText(static_cast<double>(length)));
    const std::map<int, double> found = DepthsOf(data.Row(g, arm));
    size_t row = 0;
    for (const int depth : depths) {
      const auto at = found.find(depth);
      map.shares[row++].push_back(at == found.end() ? NAN : at->second);
    }
  }
  return map;
}

}  // namespace

Figure NeedleFigure(const ReportData& data) {
  const std::string task = TaskOf(data);
  Figure figure{
      .id = "needles",
      .title = "Needle in a haystack",
      .note = fmt::format("{}: percent found, by length of the text and by where the answer lies in "
                          "it, from its start (0 %) to its end (100 %).",
                          task)};
  if (task.empty()) {
    figure.missing = "no task has its answers in one place each: run `niah`, best at several lengths";
    return figure;
  }
  std::vector<size_t> groups;
  for (size_t g = 0; g < data.groups().size(); ++g) {
    if (data.groups()[g].task == task) groups.push_back(g);
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [&](size_t a, size_t b) { return data.groups()[a].length < data.groups()[b].length; });
  std::set<int> depths;
  for (const size_t g : groups) {
    for (size_t a = 0; a < data.arms().size(); ++a) {
      for (const auto& [depth, share] : DepthsOf(data.Row(g, a))) depths.insert(depth);
    }
  }
  std::vector<DrawPanel> panels;
  figure.numbers = {{"method", "tokens", "depth", "found"}};
  for (size_t a = 0; a < data.arms().size(); ++a) {
    const HeatMap map = MapOf(data, groups, depths, a);
    for (size_t r = 0; r < map.rows.size(); ++r) {
      for (size_t c = 0; c < map.columns.size(); ++c) {
        if (std::isfinite(map.shares[r][c]))
          figure.numbers.push_back({map.title, map.columns[c], map.rows[r], PercentText(map.shares[r][c])});
      }
    }
    panels.push_back([map](Svg& svg, const Box& box) { DrawHeatMap(svg, box, map); });
  }
  const double height = std::clamp(16.0 * static_cast<double>(depths.size()), 60.0, 240.0);
  SetPicture(figure,
             {.description = " One panel for each method.",
              .columns = 3,
              .panel_height = height,
              .ramp = true,
              .ramp_low = "0 % found",
              .ramp_high = "100 %"},
             panels);
  return figure;
}

}  // namespace coppice
