#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>

namespace coppice {

// Returns true if every number is larger than the one before it.
inline bool Ascends(std::span<const int32_t> list) {
  return std::adjacent_find(list.begin(), list.end(), std::greater_equal<>()) == list.end();
}

}  // namespace coppice
