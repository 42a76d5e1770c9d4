// Pictures of a paper's tables that are no comparison of speed-ups. Each returns nothing if the rows lack
// what it draws.
#pragma once

#include <optional>
#include <vector>

#include "eval/paper/sheet.h"
#include "eval/report/chart.h"

namespace coppice {

// PaperDrawing::kCurves: the score against PaperMethod::x, a curve for each name; dense is a dashed line.
std::optional<Svg> CurvesFigure(const PaperTable& table, const PaperRows& rows);
// PaperDrawing::kTokenUse: of the first method that is not dense, a curve for each layer of the groups.
std::optional<Svg> TokenUseOfStages(const PaperTable& table, const PaperRows& rows);
// PaperDrawing::kKeys and kFfns: a heat map for each method that leaves out tokens.
std::optional<Svg> PlacesFigure(const PaperTable& table, const PaperRows& rows);

// A table's picture: its layout with this table's id and title.
struct PaperPicture {
  const PaperTable& table;
  const char* description;
  std::vector<LegendEntry> legend;
  Svg Of(Plot plot) const;
};

}  // namespace coppice
