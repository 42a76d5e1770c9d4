// The values that scores may have and nothing may trip over.
#pragma once

#include <limits>

namespace coppice {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();

}  // namespace coppice
