// The figures of a report, one function and one file each, in the order of the page.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "eval/report/chart.h"
#include "eval/report/report_data.h"

namespace coppice {

struct Figure {
  std::string id = {};  // of the section, and the picture's file name
  std::string title = {};
  std::string note = {};  // what it shows, as plain text
  std::optional<Svg> picture = {};
  std::string html = {};                               // in place of a picture: the table
  std::vector<std::vector<std::string>> numbers = {};  // the picture's, a header first; may be empty
  std::string missing = {};  // why there is no figure, and what a run needs for it; empty if there is one
};

Figure ScoreTable(const ReportData& data);
Figure NeedleFigure(const ReportData& data);
Figure AccuracyTtftFigure(const ReportData& data);
Figure AccuracyFlopsFigure(const ReportData& data);
Figure ComputedFigure(const ReportData& data);
Figure LengthFigure(const ReportData& data);
Figure LayerDropFigure(const ReportData& data);
Figure PlaceDropFigure(const ReportData& data);
Figure TokenUseFigure(const ReportData& data);
Figure AttentionMassFigure(const ReportData& data);
Figure ModuleFigure(const ReportData& data);
Figure SweepFigure(const ReportData& data);

std::vector<Figure> Figures(const ReportData& data);

// For several figures.

// Draws the figure's picture under its id and title. layout.description, if any, follows the note.
void SetPicture(Figure& figure, Layout layout, const std::vector<DrawPanel>& panels);
// Every arm, or those of a list.
std::vector<LegendEntry> ArmLegend(const ReportData& data, bool curves);
std::vector<LegendEntry> ArmLegend(const ReportData& data, const std::vector<size_t>& arms, bool curves);
// "means of 4 tasks and lengths (3 are left out, where dense's score cannot be told from 0)".
std::string MeansText(const ReportData& data, size_t groups);
// "38 to 76", in percent as it is; "" where it is not known.
std::string IntervalText(const Interval& interval);
// "" for what is not finite.
std::string Cell(double value, const NumberText& text);

}  // namespace coppice
