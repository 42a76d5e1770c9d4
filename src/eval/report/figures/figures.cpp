#include "eval/report/figures/figures.h"

#include <fmt/core.h>

#include <cmath>
#include <numeric>

namespace coppice {

std::vector<Figure> Figures(const ReportData& data) {
  using Draw = Figure (*)(const ReportData& data);
  constexpr Draw kFigures[] = {ScoreTable,     NeedleFigure,        AccuracyTtftFigure, AccuracyFlopsFigure,
                               ComputedFigure, LengthFigure,        LayerDropFigure,    PlaceDropFigure,
                               TokenUseFigure, AttentionMassFigure, ModuleFigure,       SweepFigure};
  std::vector<Figure> figures;
  for (const Draw draw : kFigures) figures.push_back(draw(data));
  return figures;
}

void SetPicture(Figure& figure, Layout layout, const std::vector<DrawPanel>& panels) {
  layout.id = figure.id;
  layout.title = figure.title;
  layout.description.insert(0, figure.note);
  figure.picture = DrawLayout(layout, panels);
}

std::vector<LegendEntry> ArmLegend(const ReportData& data, bool curves) {
  std::vector<size_t> all(data.arms().size());
  std::iota(all.begin(), all.end(), size_t{0});
  return ArmLegend(data, all, curves);
}

std::vector<LegendEntry> ArmLegend(const ReportData& data, const std::vector<size_t>& arms, bool curves) {
  std::vector<LegendEntry> legend;
  for (const size_t a : arms) {
    const ReportArm& arm = data.arms()[a];
    legend.push_back({.name = Shortened(arm.name, kPictureWidth - 120), .mark = arm.mark, .curve = curves});
  }
  return legend;
}

std::string MeansText(const ReportData& data, size_t groups) {
  const size_t out = data.LeftOut();
  return fmt::format("means of {} task{} and lengths{}", groups, groups == 1 ? "" : "s",
                     out == 0 ? ""
                              : fmt::format(" ({} {} left out, where dense's score cannot be told from 0)",
                                            out, out == 1 ? "is" : "are"));
}

std::string IntervalText(const Interval& interval) {
  if (!std::isfinite(interval.low) || !std::isfinite(interval.high)) return "";
  return fmt::format("{:.0f} to {:.0f}", interval.low, interval.high);
}

std::string Cell(double value, const NumberText& text) { return std::isfinite(value) ? text(value) : ""; }

}  // namespace coppice
