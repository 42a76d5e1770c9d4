#include "eval/report/chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace coppice {

namespace {

constexpr double kBold = 14;      // how large a title's 12.5 looks to TextWidth, which knows no bold
constexpr double kTitleGap = 12;  // from a panel's title to the box
constexpr double kLine = 18;      // of a legend

double Across(const Box& box, const Axis& axis, double value) {
  return box.left + box.width * axis.scale.At(value);
}
double Up(const Box& box, const Axis& axis, double value) {
  return box.bottom() - box.height * axis.scale.At(value);
}

bool IsIn(const Axis& axis, double value) {
  const double at = std::isfinite(value) ? axis.scale.At(value) : -1;
  return at >= -1e-6 && at <= 1 + 1e-6;
}

void DrawTitle(Svg& svg, const Box& box, const std::string& title) {
  if (!title.empty())
    svg.Text({box.left, box.top - kTitleGap}, Shortened(title, box.width, kBold), Anchor::kStart, "strong");
}

// A tick whose label would overlap the one before gets no label.
void DrawXAxis(Svg& svg, const Box& box, const Axis& axis, bool grid) {
  double free_from = -INFINITY;
  for (const double tick : axis.scale.ticks) {
    const double x = Across(box, axis, tick);
    if (grid) svg.Line({x, box.top}, {x, box.bottom()}, "grid");
    const std::string text = axis.text(tick);
    const double half = TextWidth(text) / 2;
    if (x - half < free_from) continue;
    svg.Text({x, box.bottom() + 16}, text, Anchor::kMiddle);
    free_from = x + half + 6;
  }
  svg.Line({box.left, box.bottom()}, {box.right(), box.bottom()}, "axis");
  if (!axis.title.empty())
    svg.Text({box.left + box.width / 2, box.bottom() + 36}, axis.title, Anchor::kMiddle);
}

void DrawYAxis(Svg& svg, const Box& box, const Axis& axis) {
  double widest = 0;
  for (const double tick : axis.scale.ticks) {
    const double y = Up(box, axis, tick);
    svg.Line({box.left, y}, {box.right(), y}, "grid");
    const std::string text = axis.text(tick);
    svg.Text({box.left - 7, y + 4}, text, Anchor::kEnd);
    widest = std::max(widest, TextWidth(text));
  }
  if (!axis.title.empty())
    svg.Text({box.left - 7 - widest - 12, box.top + box.height / 2}, axis.title, Anchor::kMiddle, "", -90);
}

std::string TitleOf(const Plot& plot, const Series& series, const Point& point) {
  return fmt::format("{}: {} {}, {} {}", series.name, plot.x.title, plot.x.text(point.x), plot.y.title,
                     plot.y.text(point.y));
}

void DrawSeries(Svg& svg, const Box& box, const Plot& plot, const Series& series) {
  std::vector<Point> shown;
  for (const Point& point : series.points) {
    if (IsIn(plot.x, point.x) && IsIn(plot.y, point.y)) shown.push_back(point);
  }
  if (series.curve && shown.size() > 1) {
    std::string d;
    for (const Point& point : shown)
      d += fmt::format("{}{} {}", d.empty() ? "M" : "L", Coordinate(Across(box, plot.x, point.x)),
                       Coordinate(Up(box, plot.y, point.y)));
    svg.Path(d, "curve " + ColourClass(series.mark), series.symbols ? "" : series.name, DashOf(series.mark));
  }
  for (const Point& point : shown) {
    const Place at{Across(box, plot.x, point.x), Up(box, plot.y, point.y)};
    if (std::isfinite(point.low) && std::isfinite(point.high)) {
      const double up = std::max(Up(box, plot.y, point.high), box.top);
      const double down = std::min(Up(box, plot.y, point.low), box.bottom());
      svg.Line({at.x, up}, {at.x, down}, "thin " + ColourClass(series.mark));
    }
    if (series.symbols || shown.size() == 1) DrawMark(svg, at, series.mark, TitleOf(plot, series, point));
  }
}

bool Apart(const Box& a, const Box& b) {
  return a.right() <= b.left || b.right() <= a.left || a.bottom() <= b.top || b.bottom() <= a.top;
}

// Names beside points: to the right, else to the left, above or below. A name without room is only in the
// legend.
void DrawLabels(Svg& svg, const Box& box, const Plot& plot) {
  constexpr double kReach = 7, kSize = 10.5, kHigh = 12;
  std::vector<Box> taken;
  std::vector<std::pair<Place, std::string>> labels;
  for (const Series& series : plot.series) {
    if (!series.labels || series.points.empty()) continue;
    const Point& point = series.points.back();
    if (!IsIn(plot.x, point.x) || !IsIn(plot.y, point.y)) continue;
    const Place at{Across(box, plot.x, point.x), Up(box, plot.y, point.y)};
    taken.push_back({at.x - kReach, at.y - kReach, 2 * kReach, 2 * kReach});
    labels.emplace_back(at, series.name);
  }
  for (const auto& [at, name] : labels) {
    const double wide = TextWidth(name, kSize);
    for (const Place& corner :
         {Place{at.x + kReach + 2, at.y - kHigh / 2}, Place{at.x - kReach - 2 - wide, at.y - kHigh / 2},
          Place{at.x - wide / 2, at.y - kReach - kHigh}, Place{at.x - wide / 2, at.y + kReach}}) {
      const Box text{corner.x, corner.y, wide, kHigh};
      const bool inside = text.left >= box.left && text.right() <= box.right() && text.top >= box.top &&
                          text.bottom() <= box.bottom();
      if (!inside ||
          !std::all_of(taken.begin(), taken.end(), [&](const Box& other) { return Apart(text, other); }))
        continue;
      svg.Text({text.left, text.top + kHigh - 2.5}, name, Anchor::kStart, "small");
      taken.push_back(text);
      break;
    }
  }
}

// Equal consecutive rows are drawn as one if cells have no numbers: of eighty layers most equal the one
// below.
void DrawCells(Svg& svg, const Box& box, const HeatMap& map) {
  const double wide = box.width / static_cast<double>(std::max<size_t>(map.columns.size(), 1));
  const double high = box.height / static_cast<double>(std::max<size_t>(map.rows.size(), 1));
  // A hair of the paper between cells that are large enough for it.
  const double gap = std::min(wide, high) > 8 ? 0.8 : -0.2;
  const size_t rows = std::min(map.rows.size(), map.shares.size());
  const std::string x_word = map.x_title.empty() ? "" : map.x_title + " ";
  const std::string y_word = map.y_title.empty() ? "" : map.y_title + " ";
  for (size_t r = 0, end = 0; r < rows; r = end) {
    end = r + 1;
    while (!map.numbers && end < rows && map.shares[end] == map.shares[r]) ++end;
    const std::string name = end > r + 1 ? map.rows[r] + " to " + map.rows[end - 1] : map.rows[r];
    const double tall = high * static_cast<double>(end - r);
    for (size_t c = 0; c < std::min(map.columns.size(), map.shares[r].size()); ++c) {
      const double share = map.shares[r][c];
      const Place corner{box.left + static_cast<double>(c) * wide, box.top + static_cast<double>(r) * high};
      if (!std::isfinite(share)) {
        svg.Rect(corner, wide - gap, tall - gap, "empty");
        continue;
      }
      svg.Rect(corner, wide - gap, tall - gap, "",
               fmt::format("{}{}, {}{}: {}", x_word, map.columns[c], y_word, name, PercentText(share)),
               RampColour(share));
      const std::string number = fmt::format("{:.0f}", 100 * share);
      if (map.numbers && high >= 13 && wide >= TextWidth(number, 10.5) + 4)
        svg.Text({corner.x + wide / 2, corner.y + high / 2 + 4}, number, Anchor::kMiddle,
                 RampWantsDarkText(share) ? "on-light" : "on-dark");
    }
  }
}

std::string BarClass(int colour, Fill fill) {
  constexpr const char* kFills[] = {"", " pale", " outline"};
  return fmt::format("bar c{}{}", colour, kFills[static_cast<size_t>(fill)]);
}

void DrawLegendEntry(Svg& svg, Place at, const LegendEntry& entry) {
  const double middle = at.y - 4;
  if (entry.swatch) {
    svg.Rect({at.x + 4, middle - 6}, 12, 12, BarClass(entry.mark.colour, entry.fill));
  } else {
    if (entry.curve)
      svg.Path(fmt::format("M{} {}L{} {}", Coordinate(at.x - 2), Coordinate(middle), Coordinate(at.x + 22),
                           Coordinate(middle)),
               "curve " + ColourClass(entry.mark), "", DashOf(entry.mark));
    DrawMark(svg, {at.x + 10, middle}, entry.mark);
  }
  svg.Text({at.x + 27, at.y}, entry.name, Anchor::kStart);
}

// The place of each entry in lines of `width`; the last entry's line gives the legend's height.
std::vector<Place> LegendPlaces(const std::vector<LegendEntry>& entries, double width) {
  std::vector<Place> places;
  Place next{0, 0};
  for (const LegendEntry& entry : entries) {
    const double needed = 27 + TextWidth(entry.name) + 18;
    if (next.x > 0 && next.x + needed > width) next = {0, next.y + kLine};
    places.push_back(next);
    next.x += needed;
  }
  return places;
}

void DrawRamp(Svg& svg, Place at, const Layout& layout) {
  constexpr int kSteps = 24;
  constexpr double kStep = 7;
  svg.Text({at.x, at.y}, layout.ramp_low, Anchor::kStart);
  const double left = at.x + TextWidth(layout.ramp_low) + 8;
  for (int i = 0; i < kSteps; ++i)
    svg.Rect({left + i * kStep, at.y - 10}, kStep + 0.3, 12, "", "",
             RampColour(static_cast<double>(i) / (kSteps - 1)));
  svg.Text({left + kSteps * kStep + 8, at.y}, layout.ramp_high, Anchor::kStart);
}

}  // namespace

void DrawPlot(Svg& svg, const Box& box, const Plot& plot) {
  DrawTitle(svg, box, plot.title);
  DrawYAxis(svg, box, plot.y);
  DrawXAxis(svg, box, plot.x, false);
  for (const double guide : plot.guides) {
    if (!IsIn(plot.y, guide)) continue;
    const double y = Up(box, plot.y, guide);
    svg.Line({box.left, y}, {box.right(), y}, "guide");
  }
  for (const Series& series : plot.series) DrawSeries(svg, box, plot, series);
  DrawLabels(svg, box, plot);
}

void DrawBars(Svg& svg, const Box& box, const BarChart& chart) {
  DrawTitle(svg, box, chart.title);
  DrawXAxis(svg, box, chart.x, true);
  for (const double guide : chart.guides) {
    if (!IsIn(chart.x, guide)) continue;
    const double x = Across(box, chart.x, guide);
    svg.Line({x, box.top}, {x, box.bottom()}, "guide");
  }
  const double slot = box.height / static_cast<double>(std::max<size_t>(chart.rows.size(), 1));
  for (size_t r = 0; r < chart.rows.size(); ++r) {
    const BarRow& row = chart.rows[r];
    const double top = box.top + static_cast<double>(r) * slot;
    svg.Text({box.left - 8, top + slot / 2 + 4}, Shortened(row.label, chart.label_width), Anchor::kEnd);
    const double lanes = chart.stacked ? 1 : static_cast<double>(std::max<size_t>(row.bars.size(), 1));
    const double thick = std::min(0.76 * slot / lanes, 18.0);
    const double first = top + (slot - thick * lanes) / 2;
    double from = 0;
    double furthest = 0;
    for (size_t b = 0; b < row.bars.size(); ++b) {
      const Bar& bar = row.bars[b];
      if (!std::isfinite(bar.value) || bar.value < 0) continue;
      const double begin = std::clamp(chart.x.scale.At(from), 0.0, 1.0) * box.width;
      const double end = std::clamp(chart.x.scale.At(from + bar.value), 0.0, 1.0) * box.width;
      const double lane = chart.stacked ? 0 : static_cast<double>(b) * thick;
      svg.Rect({box.left + begin, first + lane}, std::max(end - begin, 0.0), thick,
               BarClass(bar.colour, bar.fill), bar.title);
      furthest = std::max(furthest, end);
      if (chart.stacked) from += bar.value;
    }
    if (!row.end.empty())
      svg.Text({box.left + furthest + 6, top + slot / 2 + 4}, row.end, Anchor::kStart, "small");
  }
}

void DrawHeatMap(Svg& svg, const Box& box, const HeatMap& map) {
  DrawTitle(svg, box, map.title);
  DrawCells(svg, box, map);
  const double wide = box.width / static_cast<double>(std::max<size_t>(map.columns.size(), 1));
  const double high = box.height / static_cast<double>(std::max<size_t>(map.rows.size(), 1));
  double free_from = -INFINITY;
  for (size_t c = 0; c < map.columns.size(); ++c) {
    const double x = box.left + (static_cast<double>(c) + 0.5) * wide;
    const double half = TextWidth(map.columns[c]) / 2;
    if (x - half < free_from) continue;
    svg.Text({x, box.bottom() + 16}, map.columns[c], Anchor::kMiddle);
    free_from = x + half + 5;
  }
  double widest = 0;
  free_from = -INFINITY;
  for (size_t r = 0; r < map.rows.size(); ++r) {
    const double y = box.top + (static_cast<double>(r) + 0.5) * high;
    if (y - 7 < free_from) continue;
    svg.Text({box.left - 7, y + 4}, map.rows[r], Anchor::kEnd);
    widest = std::max(widest, TextWidth(map.rows[r]));
    free_from = y + 7;
  }
  if (!map.x_title.empty())
    svg.Text({box.left + box.width / 2, box.bottom() + 36}, map.x_title, Anchor::kMiddle);
  if (!map.y_title.empty())
    svg.Text({box.left - 7 - widest - 10, box.top + box.height / 2}, map.y_title, Anchor::kMiddle, "", -90);
}

Svg DrawLayout(const Layout& layout, const std::vector<DrawPanel>& panels) {
  constexpr double kTop = 34, kRight = 16, kSide = 8;
  const size_t columns = std::max<size_t>(std::min(layout.columns, panels.size()), 1);
  const size_t lines = (panels.size() + columns - 1) / columns;
  const double panel_width = (kPictureWidth - 2 * kSide) / static_cast<double>(columns);
  const double panel_height = kTop + layout.panel_height + layout.bottom_margin;
  const std::vector<Place> places = LegendPlaces(layout.legend, kPictureWidth - 2 * kSide - 16);
  const double legend = layout.legend.empty() ? 0 : places.back().y + kLine + 8;
  const double ramp = layout.ramp ? 26 : 0;
  Svg svg(layout.id, kPictureWidth, static_cast<double>(lines) * panel_height + ramp + legend + 4,
          layout.title, layout.description);
  for (size_t i = 0; i < panels.size(); ++i) {
    const double left = kSide + static_cast<double>(i % columns) * panel_width;
    const double top = static_cast<double>(i / columns) * panel_height;
    panels[i](svg, {.left = left + layout.left_margin,
                    .top = top + kTop,
                    .width = panel_width - layout.left_margin - kRight,
                    .height = layout.panel_height});
  }
  double y = static_cast<double>(lines) * panel_height + 14;
  if (layout.ramp) {
    DrawRamp(svg, {kSide + 16, y}, layout);
    y += ramp;
  }
  for (size_t i = 0; i < layout.legend.size(); ++i)
    DrawLegendEntry(svg, {kSide + 16 + places[i].x, y + places[i].y}, layout.legend[i]);
  return svg;
}

}  // namespace coppice
