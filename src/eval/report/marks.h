// The look of each method in every figure and report: a colour by its name, and a shape and a dash that
// distinguish methods of one colour.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "eval/report/svg.h"

namespace coppice {

struct Mark {
  int colour = 0;  // class c0, c1, ...; 0 is dense
  int shape = 0;   // of kShapes, and of the dashes

  friend bool operator==(const Mark&, const Mark&) = default;
};

inline constexpr int kColours = 9;
inline constexpr int kShapes = 8;

// A mark for each spec, in order; all differ unless more than kShapes share a colour. "none" is dense.
std::vector<Mark> MarksOf(const std::vector<std::string>& specs);

std::string ColourClass(const Mark& mark);
// As stroke-dasharray; "" is a whole line.
std::string_view DashOf(const Mark& mark);
// Draws the mark's shape around `at`, in its colour.
void DrawMark(Svg& svg, Place at, const Mark& mark, std::string_view title = {}, double size = 5);

// The style sheet of charts, for pages and for picture files: light, or dark if the reader's system prefers
// it.
extern const char kChartStyle[];

// A colour for a share in [0, 1], from dark blue to yellow; its lightness rises evenly, so that it is
// readable without hues. And whether text on it must be dark.
std::string RampColour(double share);
bool RampWantsDarkText(double share);

}  // namespace coppice
