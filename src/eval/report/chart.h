// Charts: curves and points over two axes, rows of bars, and heat maps, each drawn into a box of a picture.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "eval/report/marks.h"
#include "eval/report/scale.h"
#include "eval/report/svg.h"

namespace coppice {

// The area of the data; labels are around it, within the margins of a panel.
struct Box {
  double left = 0;
  double top = 0;
  double width = 0;
  double height = 0;

  double right() const { return left + width; }
  double bottom() const { return top + height; }
};

struct Axis {
  std::string title = {};
  Scale scale = {};
  NumberText text = PlainText;  // of its ticks
};

struct Point {
  double x = 0;
  double y = 0;
  double low = NAN;  // ends of a whisker, where they are finite
  double high = NAN;
};

// Points that share a mark. Points that are not finite are left out.
struct Series {
  std::string name = {};
  Mark mark = {};
  std::vector<Point> points = {};
  bool curve = true;    // joins the points
  bool symbols = true;  // draws them
  bool labels = false;  // the name beside the last point, where there is room
};

struct Plot {
  std::string title = {};
  Axis x = {};
  Axis y = {};
  std::vector<Series> series = {};
  std::vector<double> guides = {};  // dashed lines at these y
};
void DrawPlot(Svg& svg, const Box& box, const Plot& plot);

// One bar, or bars on end of each other, for each row.
enum class Fill { kFull, kPale, kOutline };
struct Bar {
  double value = 0;
  int colour = 0;
  Fill fill = Fill::kFull;
  std::string title = {};
};
struct BarRow {
  std::string label = {};
  std::vector<Bar> bars = {};
  std::string end = {};  // after the bars
};
struct BarChart {
  std::string title = {};
  Axis x = {};
  std::vector<BarRow> rows = {};
  double label_width = 200;
  bool stacked = false;             // else the bars of a row lie above each other
  std::vector<double> guides = {};  // dashed lines at these x
};
void DrawBars(Svg& svg, const Box& box, const BarChart& chart);

struct HeatMap {
  std::string title = {};
  std::string x_title = {};
  std::string y_title = {};
  std::vector<std::string> columns = {};
  std::vector<std::string> rows = {};
  std::vector<std::vector<double>> shares = {};  // [rows][columns] in [0, 1]; what is not finite stays empty
  bool numbers = false;                          // as percent in the cells, where they have room
};
void DrawHeatMap(Svg& svg, const Box& box, const HeatMap& map);

// A text and its mark. A mark with a colour alone is drawn as a square.
struct LegendEntry {
  std::string name = {};
  Mark mark = {};
  bool curve = false;
  bool swatch = false;
  Fill fill = Fill::kFull;  // of a swatch
};

// A picture of panels in a grid, with a legend below where there are entries.
struct Layout {
  std::string id = {};
  std::string title = {};
  std::string description = {};
  size_t columns = 1;
  double panel_height = 260;  // of the data
  double left_margin = 64;    // of each panel: tick labels and the axis title
  double bottom_margin = 46;
  std::vector<LegendEntry> legend = {};
  bool ramp = false;          // the colours of heat maps
  std::string ramp_low = {};  // what its ends mean
  std::string ramp_high = {};
};
using DrawPanel = std::function<void(Svg& svg, const Box& box)>;
Svg DrawLayout(const Layout& layout, const std::vector<DrawPanel>& panels);

inline constexpr double kPictureWidth = 960;

}  // namespace coppice
