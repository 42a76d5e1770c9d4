#pragma once

#include <chrono>

namespace coppice {

inline double Seconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

}  // namespace coppice
