#include "eval/report/marks.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "policies/spec.h"

namespace coppice {

namespace {

struct NamedMark {
  std::string_view method;
  Mark mark;
};

// Four methods have colours of their own; baselines share the others.
constexpr NamedMark kNamedMarks[] = {
    {"none", {0, 0}},         {"lazyllm", {1, 0}},     {"ftp", {4, 1}},         {"sdtp", {3, 2}},
    {"sliminfer", {2, 3}},    {"random", {8, 4}},      {"selective", {7, 4}},   {"static", {5, 0}},
    {"pyramidinfer", {6, 1}}, {"h2o", {5, 5}},         {"snapkv", {6, 6}},      {"streamingllm", {7, 7}},
    {"quest", {8, 2}},        {"minference", {4, 5}},  {"flexprefill", {3, 6}}, {"xattention", {1, 7}},
    {"flashprefill", {3, 5}}, {"specprefill", {6, 4}}, {"uniprefill", {7, 3}},  {"fastkv", {5, 2}},
    {"gemfilter", {8, 1}},    {"drop", {5, 6}},        {"llmlingua2", {7, 5}},  {"spts", {6, 3}},
};

constexpr std::array<std::string_view, kShapes> kDashes = {"",    "7 3", "2 3",  "9 3 2 3",
                                                           "4 2", "1 2", "12 4", "6 2 2 2 2 2"};

// Data of paths around the origin, for a radius of 1.
std::string ShapePath(int shape, double x, double y, double r) {
  const auto at = [&](double dx, double dy) { return Coordinate(x + r * dx) + " " + Coordinate(y + r * dy); };
  const auto closed = [&](std::initializer_list<std::pair<double, double>> corners) {
    std::string d;
    for (const auto& [dx, dy] : corners) d += (d.empty() ? "M" : "L") + at(dx, dy);
    return d + "Z";
  };
  switch (shape) {
    case 1:
      return closed({{-0.85, -0.85}, {0.85, -0.85}, {0.85, 0.85}, {-0.85, 0.85}});
    case 2:
      return closed({{0, -1.1}, {1.05, 0.8}, {-1.05, 0.8}});
    case 3:
      return closed({{0, -1.25}, {1.05, 0}, {0, 1.25}, {-1.05, 0}});
    case 4:
      return closed({{0, 1.1}, {1.05, -0.8}, {-1.05, -0.8}});
    case 5:  // a plus
      return closed({{-0.4, -1.15},
                     {0.4, -1.15},
                     {0.4, -0.4},
                     {1.15, -0.4},
                     {1.15, 0.4},
                     {0.4, 0.4},
                     {0.4, 1.15},
                     {-0.4, 1.15},
                     {-0.4, 0.4},
                     {-1.15, 0.4},
                     {-1.15, -0.4},
                     {-0.4, -0.4}});
    case 6:
      return closed({{0, -1.2}, {1.14, -0.37}, {0.7, 0.97}, {-0.7, 0.97}, {-1.14, -0.37}});
    case 7:  // a cross
      return closed({{-0.55, -1.1},
                     {0, -0.55},
                     {0.55, -1.1},
                     {1.1, -0.55},
                     {0.55, 0},
                     {1.1, 0.55},
                     {0.55, 1.1},
                     {0, 0.55},
                     {-0.55, 1.1},
                     {-1.1, 0.55},
                     {-0.55, 0},
                     {-1.1, -0.55}});
    default: {
      const std::string radius = Coordinate(r);
      return fmt::format("M{}A{} {} 0 1 1 {}A{} {} 0 1 1 {}Z", at(-1, 0), radius, radius, at(1, 0), radius,
                         radius, at(-1, 0));
    }
  }
}

// Cividis in nine steps, whose order is visible with any colour vision (Nunez, Anderton and Renslow, 2018).
constexpr std::array<std::array<int, 3>, 9> kRamp = {{{0, 34, 78},
                                                      {32, 56, 110},
                                                      {65, 77, 107},
                                                      {92, 99, 110},
                                                      {124, 123, 120},
                                                      {153, 148, 118},
                                                      {187, 175, 107},
                                                      {221, 204, 87},
                                                      {254, 232, 56}}};

Mark PreferredMark(const std::string& spec) {
  std::string name = spec;
  try {
    const std::vector<MethodSpec> methods = ParseSpec(spec);
    name = methods.empty() ? "none" : methods.front().name;
  } catch (const std::exception&) {  // an edited record: any mark will do
  }
  for (const NamedMark& named : kNamedMarks) {
    if (named.method == name) return named.mark;
  }
  return {8, 0};
}

}  // namespace

std::vector<Mark> MarksOf(const std::vector<std::string>& specs) {
  std::vector<Mark> marks;
  for (const std::string& spec : specs) {
    Mark mark = PreferredMark(spec);
    for (int tries = 0; tries < kShapes && std::find(marks.begin(), marks.end(), mark) != marks.end();
         ++tries)
      mark.shape = (mark.shape + 1) % kShapes;
    marks.push_back(mark);
  }
  return marks;
}

std::string ColourClass(const Mark& mark) { return fmt::format("c{}", mark.colour); }

std::string_view DashOf(const Mark& mark) { return kDashes[static_cast<size_t>(mark.shape % kShapes)]; }

void DrawMark(Svg& svg, Place at, const Mark& mark, std::string_view title, double size) {
  svg.Path(ShapePath(mark.shape, at.x, at.y, size), "mark " + ColourClass(mark), title);
}

std::string RampColour(double share) {
  const double at = std::clamp(std::isfinite(share) ? share : 0, 0.0, 1.0) * (kRamp.size() - 1);
  const auto below = std::min(static_cast<size_t>(at), kRamp.size() - 2);
  const double part = at - static_cast<double>(below);
  const auto mixed = [&](size_t channel) {
    return static_cast<int>(
        std::lround((1 - part) * kRamp[below][channel] + part * kRamp[below + 1][channel]));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", mixed(0), mixed(1), mixed(2));
}

bool RampWantsDarkText(double share) { return share > 0.55; }

const char kChartStyle[] = R"css(
:root, svg.chart {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #15191e; --ink-2: #515a66; --line: #dde1e7;
  --c0: #15191e; --c1: #0068b3; --c2: #c44e0c; --c3: #00805c; --c4: #b58100; --c5: #a3417f; --c6: #2f9fd0; --c7: #7a5c3a;
  --c8: #737d89;
}
@media (prefers-color-scheme: dark) {
  :root, svg.chart {
    --paper: #181c22; --ink: #e9edf2; --ink-2: #a9b3bf; --line: #333b45;
    --c0: #e9edf2; --c1: #58a6f0; --c2: #f4864a; --c3: #35c59d; --c4: #e8bd3c; --c5: #e58fca; --c6: #93d8f7; --c7: #c9a783;
    --c8: #98a2ae;
  }
}
svg.chart { display: block; font: 12px/1.3 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
svg.chart text { fill: var(--ink-2); font-size: 12px; }
svg.chart text.strong { fill: var(--ink); font-weight: 600; }
svg.chart text.small { font-size: 10.5px; paint-order: stroke; stroke: var(--paper); stroke-width: 3px; }
svg.chart text.on-dark { fill: #ffffff; font-size: 10.5px; }
svg.chart text.on-light { fill: #15191e; font-size: 10.5px; }
svg.chart .paper { fill: var(--paper); }
svg.chart .grid { stroke: var(--line); stroke-width: 1; }
svg.chart .axis { stroke: var(--ink-2); stroke-width: 1; }
svg.chart .guide { stroke: var(--ink-2); stroke-width: 1; stroke-dasharray: 4 4; fill: none; }
svg.chart .empty { fill: none; stroke: var(--line); }
svg.chart .mark { fill: currentColor; stroke: var(--paper); stroke-width: 1; }
svg.chart .curve { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; }
svg.chart .thin { fill: none; stroke: currentColor; stroke-width: 1; opacity: .6; }
svg.chart .bar { fill: currentColor; stroke: var(--paper); stroke-width: .5; }
svg.chart .pale { opacity: .45; }
svg.chart .bar.outline { fill: none; stroke: currentColor; stroke-width: 1.5; }
.c0 { color: var(--c0); } .c1 { color: var(--c1); } .c2 { color: var(--c2); } .c3 { color: var(--c3); } .c4 { color: var(--c4); }
.c5 { color: var(--c5); } .c6 { color: var(--c6); } .c7 { color: var(--c7); } .c8 { color: var(--c8); }
)css";

}  // namespace coppice
