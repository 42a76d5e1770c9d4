#include <algorithm>
#include <cmath>

#include "eval/paper/paper_drawings.h"
#include "eval/paper/paper_page.h"
#include "eval/report/chart.h"
#include "eval/report/marks.h"

namespace coppice {

namespace {

// Where a table has the measure; SIZE_MAX where it does not.
size_t ColumnOf(const PaperTable& table, PaperMeasure measure) {
  const auto found = std::find(table.measures.begin(), table.measures.end(), measure);
  return found == table.measures.end() ? SIZE_MAX : static_cast<size_t>(found - table.measures.begin());
}

// The figures of this run or of a published model.
class PaperFigures {
 public:
  PaperFigures(const PaperTable& table, const PaperRows& rows, std::string published)
      : table_(table), rows_(rows), published_(std::move(published)) {}

  double At(const PaperGroup& group, const PaperMethod& method, PaperMeasure measure) const {
    if (published_.empty()) return CellValue(rows_, group, method, measure);
    return PublishedValue(table_, published_, group.label, method.label, ColumnOf(table_, measure));
  }

 private:
  const PaperTable& table_;
  const PaperRows& rows_;
  std::string published_;  // the model; empty: this run
};

bool IsDense(const PaperMethod& method) { return method.specs == std::vector<std::string>{"none"}; }

// The colour says the method, the shape the model.
Mark MarkOf(const PaperMethod& method, size_t number, size_t model) {
  Mark mark;
  mark.colour = method.specs.empty() ? static_cast<int>(1 + number % (kColours - 1))
                                     : MarksOf({method.specs.front()}).front().colour;
  mark.shape = static_cast<int>(model) % kShapes;
  return mark;
}

struct DrawnTable {
  Plot plot;
  std::vector<LegendEntry> legend;
};

// A series for each method of this run and of each published model.
template <typename PointOf>
DrawnTable Draw(const PaperTable& table, const PaperRows& rows, const std::string& model, bool curve,
                const PointOf& point_of) {
  std::vector<std::string> models = {""};
  for (const std::string& published : PublishedModels(table)) models.push_back(published);
  DrawnTable drawn;
  for (size_t k = 0; k < models.size(); ++k) {
    const PaperFigures figures(table, rows, models[k]);
    for (size_t m = 0; m < table.methods.size(); ++m) {
      if (IsDense(table.methods[m])) continue;
      Series series{.name = table.methods[m].label + ", " + (k == 0 ? model : models[k] + " (published)"),
                    .mark = MarkOf(table.methods[m], m, k),
                    .curve = curve};
      for (const PaperGroup& group : table.groups) {
        if (group.average) continue;
        const Point point = point_of(figures, group, table.methods[m]);
        if (std::isfinite(point.x) && std::isfinite(point.y)) series.points.push_back(point);
      }
      if (series.points.empty()) continue;
      drawn.legend.push_back({.name = Shortened(series.name, 420), .mark = series.mark, .curve = curve});
      drawn.plot.series.push_back(std::move(series));
    }
  }
  return drawn;
}

std::vector<double> Coordinates(const Plot& plot, double Point::*of) {
  std::vector<double> all = {1};  // dense
  for (const Series& series : plot.series) {
    for (const Point& point : series.points) all.push_back(point.*of);
  }
  return all;
}

Svg Picture(const PaperTable& table, DrawnTable drawn, const char* description) {
  return PaperPicture{table, description, std::move(drawn.legend)}.Of(std::move(drawn.plot));
}

std::optional<Svg> SpeedUpsFigure(const PaperTable& table, const PaperRows& rows, const std::string& model) {
  if (table.wide || ColumnOf(table, PaperMeasure::kTtftSpeedUp) == SIZE_MAX) return std::nullopt;
  const bool by_length = table.groups.front().length > 0;
  if (!by_length && ColumnOf(table, PaperMeasure::kScore) == SIZE_MAX) return std::nullopt;
  const PaperMethod& dense = table.methods.front();
  DrawnTable drawn =
      Draw(table, rows, model, by_length,
           [&](const PaperFigures& figures, const PaperGroup& group, const PaperMethod& method) -> Point {
             const double speed_up = figures.At(group, method, PaperMeasure::kTtftSpeedUp);
             if (by_length) return {static_cast<double>(group.length), speed_up};
             const double share = figures.At(group, method, PaperMeasure::kScore) /
                                  figures.At(group, dense, PaperMeasure::kScore);
             return {speed_up, share};
           });
  if (drawn.plot.series.empty()) return std::nullopt;
  const Range y = RangeOf(Coordinates(drawn.plot, &Point::y));
  drawn.plot.guides = {1};
  if (by_length) {
    std::vector<double> lengths;
    for (const PaperGroup& group : table.groups) {
      if (group.length > 0) lengths.push_back(static_cast<double>(group.length));
    }
    drawn.plot.x = {"tokens of prompt", ScaleOfValues(lengths), CountText};
    drawn.plot.y = {"TTFT speed-up", NiceScale(std::min(y.low, 0.8), y.high), RatioText};
    return Picture(table, std::move(drawn), "The TTFT speed-up by length of the prompt.");
  }
  const Range x = RangeOf(Coordinates(drawn.plot, &Point::x));
  drawn.plot.x = {"TTFT speed-up", NiceScale(std::min(x.low, 0.8), x.high, 8), RatioText};
  drawn.plot.y = {"score, of dense's", NiceScale(std::min(y.low, 0.8), y.high), PercentText};
  return Picture(table, std::move(drawn),
                 "A point for each group of tasks: its score as a share of the dense model's, against the "
                 "TTFT speed-up. The dashed line is dense.");
}

}  // namespace

std::optional<Svg> PaperFigure(const PaperTable& table, const PaperRows& rows, const std::string& model) {
  switch (table.drawing) {
    case PaperDrawing::kSpeedUps:
      return SpeedUpsFigure(table, rows, model);
    case PaperDrawing::kCurves:
      return CurvesFigure(table, rows);
    case PaperDrawing::kTokenUse:
      return TokenUseOfStages(table, rows);
    case PaperDrawing::kKeys:
    case PaperDrawing::kFfns:
      return PlacesFigure(table, rows);
  }
  return std::nullopt;
}

}  // namespace coppice
