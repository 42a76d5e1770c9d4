// Numbers between two bounds, as a grammar over their decimal digits.
#pragma once

#include <optional>

#include "grammar/rules.h"

namespace coppice {

// Inclusive unless open; unset: no bound.
struct NumberBounds {
  std::optional<double> low = {};
  std::optional<double> high = {};
  bool low_is_open = false;
  bool high_is_open = false;
};

// Without exponents, at most 16 digits on each side of the point; `whole`: without a fraction. Throws Error
// if a bound needs more digits. Matches no text if no such number exists.
grammar::Expr NumbersBetween(const NumberBounds& bounds, bool whole);

}  // namespace coppice
