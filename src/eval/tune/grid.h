// Where `coppice tune` looks: for each method a list of settings (grid_table.h), and steps from one to the
// next.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/model_shape.h"

namespace coppice {

// What is tried under one name: a method or a composition.
struct MethodGrid {
  std::string name;  // "lazyllm", "sliminfer+ftp"
  std::vector<std::string> specs;
  double weight = 1;  // its part of a limited time, beside the other grids'
};

// Methods that can shorten the time to the first token without files of their own.
std::vector<std::string> TunedMethods();

// The settings to try for `wish`: a method or several joined by +, each with keys that stay as they are
// ("ftp:dense=4"). `prompt` is the length that is tuned for and `least` the shortest that the setting shall
// serve: a method whose own break-even length is longer is told to act from there on. Throws Error for what
// is no spec, or a method that no prefill is shorter with.
MethodGrid GridOf(const std::string& wish, const ModelShape& shape, int64_t prompt, int64_t least);

// `spec` as it is, joined by one more method that may save more, a grid for each such method.
std::vector<MethodGrid> CompositionsOf(const std::string& spec, const ModelShape& shape, int64_t prompt,
                                       int64_t least);

// The methods of a spec, joined by +.
std::string NamesOf(const std::string& spec);

// One coordinate of a spec: an element of a key's list, stronger or milder by `step` in (0, 1). Whether a
// neighbour is a legal spec, and which of the two is cheaper, is for the dry run to say.
struct Direction {
  std::string name;                // "sliminfer.keep[1]"
  std::vector<std::string> specs;  // at most two
};
std::vector<Direction> NeighboursOf(const std::string& spec, double step);

}  // namespace coppice
