// The settings that `coppice tune` tries, as a table: to extend it, add a row or a value.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace coppice {

// A value is written as in a spec, except for three forms:
//
//   "@0.3/0.6/0.9"  layers at these depths of the model, each once
//   "#0.25"         this share of the prompt's tokens, at least 64
//   "-"             the key is left out: the method's own preset
//
// A list with more elements than the candidate's `layers` loses its last ones. A setting that a model cannot
// have (two stages in one layer) is dropped when it is planned. A row without a name sets several keys: its
// values are parts of a spec, "queries=16,widen=8".
struct GridKey {
  const char* key;
  std::vector<std::string> values;  // mild first
};

struct GridMethod {
  const char* name;
  bool by_default;  // tried without --methods
  bool joins;       // tried on top of the best method, as a composition
  double weight;    // part of a limited time; the methods that won on real models have the largest
  // The first key is the method's strength; where several methods are joined, it alone varies. Keys that the
  // method does not have (yet) are skipped, and so are methods that the registry does not have.
  std::vector<GridKey> keys;
};

std::span<const GridMethod> GridTable();

// Specs that are tried before the grids, the likeliest first; values as above.
std::span<const char* const> PromisingForms();

}  // namespace coppice
