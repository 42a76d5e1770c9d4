// JSON values as schemas compare them.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace coppice {

// 1 equals 1.0; the order of members does not matter.
bool SameValue(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b);
// The same. Calls `spend` with steps of some ten nanoseconds, before it takes them; `spend` may throw.
bool SameValue(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b,
               const std::function<void(size_t)>& spend);
// Of the types of JSON schemas: 1.0 is an integer. False for a type that is none.
bool IsOfType(const nlohmann::ordered_json& value, std::string_view type);
bool IsWhole(const nlohmann::ordered_json& value);
// -1, 0 or 1, of two numbers; whole ones exactly.
int CompareNumbers(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b);
// Of the numbers as they are written in decimal: 0.3 is a multiple of 0.1. `divisor` is positive.
bool IsMultiple(const nlohmann::ordered_json& value, const nlohmann::ordered_json& divisor);
// For messages: formats as the beginning of the value's JSON, 80 bytes at most, whatever the value's size.
struct ShownValue {
  const nlohmann::ordered_json& value;
  std::string Text() const;
};
// Those in the value, and itself.
size_t CountValues(const nlohmann::ordered_json& value);
// In characters.
size_t LengthOf(std::string_view text);

}  // namespace coppice

template <>
struct fmt::formatter<coppice::ShownValue> : fmt::formatter<std::string_view> {
  template <typename Context>
  auto format(const coppice::ShownValue& shown, Context& context) const {
    return fmt::formatter<std::string_view>::format(shown.Text(), context);
  }
};
