// Where `coppice tune` looks: for each method a short list of settings, and steps from one to the next.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "policies/shape.h"

namespace coppice {

// Methods that can shorten the time to the first token without files of their own, and the composition that gains most.
std::vector<std::string> TunedMethods();

// The settings to try for `wish`: a method or several joined by +, each with keys that stay as they are ("ftp:dense=4").
// Values follow the model's shape and the shortest prompt, below which the method is told to stand aside where its own
// break-even length is longer than that. Throws Error for what is no spec, or a method that no prefill is shorter with.
std::vector<std::string> GridOf(const std::string& wish, const ModelShape& shape, int64_t shortest_prompt);

// One coordinate of a spec: an element of a key's list, stronger or milder by `step` in (0, 1). Whether a neighbour is a
// legal spec, and which of the two is cheaper, is for the dry run to say.
struct Direction {
  std::string name;                // "sliminfer.keep[1]"
  std::vector<std::string> specs;  // at most two
};
std::vector<Direction> NeighboursOf(const std::string& spec, double step);

}  // namespace coppice
