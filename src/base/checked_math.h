// Overflow-checked arithmetic for every size that comes from a file or a request. Returns nullopt on
// overflow.
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
