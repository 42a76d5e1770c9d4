// Sizes that come from a file or a request are multiplied and added here and nowhere else.
#pragma once

#include <concepts>
#include <optional>

namespace coppice {

template <std::integral T>
constexpr std::optional<T> CheckedMul(T a, T b) {
  T result{};
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

template <std::integral T>
constexpr std::optional<T> CheckedAdd(T a, T b) {
  T result{};
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

}  // namespace coppice
