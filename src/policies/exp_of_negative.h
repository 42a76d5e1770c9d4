// exp for the estimates of sparse prefill, which the backend does not run on several threads.
#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>

namespace coppice {

// exp(x) for x <= 0 with a relative error of 2e-7; below -87, exp(-87); NaN for NaN. Without branches or
// calls, so that the compiler can vectorise it.
inline float ExpOfNegative(float x) {
  constexpr float kRound = 12582912;  // 1.5 * 2^23: adding it rounds to a whole number in the low bits
  constexpr float kLog2E = 1.44269504f;
  x = x < -87 ? -87 : x;
  const float shifted = x * kLog2E + kRound;
  const float whole = shifted - kRound;
  const float r =
      x - whole * 0.693359375f + whole * 2.12194440e-4f;  // ln 2 in two parts, the first one exact
  float p = 1.0f / 720;
  for (const float factor : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) p = p * r + factor;
  const uint32_t exponent = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound) + 127;
  return p * std::bit_cast<float>(exponent << 23);
}

}  // namespace coppice
