// The settings that `coppice tune` tries: a list for each method (grid_table.h), and steps from one to the
// next.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/model_shape.h"

namespace coppice {

// The settings tried under one name: of a method or a composition.
struct MethodGrid {
  std::string name;  // "lazyllm", "sliminfer+ftp"
  std::vector<std::string> specs;
  double weight = 1;  // its part of a limited time, relative to other grids
};

// Methods that can shorten the time to the first token without files of their own.
std::vector<std::string> TunedMethods();

// The settings to try for `wish`: a method or several joined by +, each with keys that are fixed
// ("ftp:dense=4"). `prompt` is the length that is tuned for, and `least` the shortest length that the setting
// must serve: a method with a longer break-even length gets `least` as its `min`. Throws Error if `wish` is
// no spec, or for a method that does not shorten a prefill.
MethodGrid GridOf(const std::string& wish, const ModelShape& shape, int64_t prompt, int64_t least);

// `spec`, unchanged, joined by one more method that may save more: a grid for each such method.
std::vector<MethodGrid> CompositionsOf(const std::string& spec, const ModelShape& shape, int64_t prompt,
                                       int64_t least);

// Specs that are likely to help on any model, the likeliest first: methods with their defaults, and settings
// that won elsewhere (grid_table.h). Those that the registry or the model cannot have are left out.
std::vector<std::string> PromisingSpecs(const ModelShape& shape, int64_t prompt, int64_t least);

// `spec` with the keys that NeighboursOf changes and that it leaves to their defaults, as `full` has them:
// the same spec with every key written out.
std::string WithTunedKeys(const std::string& spec, const std::string& full);

// The methods of a spec, joined by +.
std::string NamesOf(const std::string& spec);

// One coordinate of a spec: an element of a key's list, made stronger or milder by `step` in (0, 1). The dry
// run decides whether a neighbour is valid, and which of the two is cheaper.
struct Direction {
  std::string name;                // "sliminfer.keep[1]"
  std::vector<std::string> specs;  // at most two
};
std::vector<Direction> NeighboursOf(const std::string& spec, double step);

}  // namespace coppice
