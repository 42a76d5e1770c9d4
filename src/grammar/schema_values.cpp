#include "grammar/schema_values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace coppice {

namespace {

using Json = nlohmann::ordered_json;
constexpr size_t kMaxShown = 80;  // bytes
__extension__ typedef unsigned __int128 Wide;

// digits * 10^exponent, without zeros at the end of the digits.
struct DecimalText {
  uint64_t digits = 0;
  int exponent = 0;
};

DecimalText DecimalOf(const Json& value) {
  DecimalText decimal;
  if (value.is_number_integer()) {
    const int64_t number = value.get<int64_t>();
    decimal.digits = value.is_number_unsigned() || number >= 0 ? value.get<uint64_t>()
                                                               : uint64_t{0} - static_cast<uint64_t>(number);
  } else {
    // The shortest digits that give the double: d.ddde[+-]xx.
    std::array<char, 64> text{};
    const double number = std::abs(value.get<double>());
    const auto end =
        std::to_chars(text.data(), text.data() + text.size(), number, std::chars_format::scientific);
    for (const char* at = text.data(); at < end.ptr; ++at) {
      if (*at == 'e') {
        decimal.exponent += std::atoi(at + 1);
        break;
      }
      if (*at == '.') continue;
      decimal.digits = decimal.digits * 10 + static_cast<uint64_t>(*at - '0');
      if (at > text.data()) --decimal.exponent;
    }
  }
  while (decimal.digits != 0 && decimal.digits % 10 == 0) {
    decimal.digits /= 10;
    ++decimal.exponent;
  }
  return decimal;
}

// Adds the beginning of a value's JSON, without going through the rest of it.
void Show(const Json& value, std::string& text) {
  if (text.size() > kMaxShown) return;
  if (value.is_string()) {
    const Json begin = value.get_ref<const std::string&>().substr(0, kMaxShown);
    text += begin.dump(-1, ' ', false, Json::error_handler_t::replace);
  } else if (value.is_structured()) {
    text += value.is_array() ? "[" : "{";
    bool first = true;
    for (auto item = value.begin(); item != value.end() && text.size() <= kMaxShown; ++item) {
      if (!std::exchange(first, false)) text += ",";
      if (value.is_object()) {
        Show(Json(item.key().substr(0, kMaxShown)), text);
        text += ":";
      }
      Show(*item, text);
    }
    text += value.is_array() ? "]" : "}";
  } else {
    text += value.dump();
  }
}

}  // namespace

bool SameValue(const Json& a, const Json& b) {
  return SameValue(a, b, [](size_t) {});
}

bool SameValue(const Json& a, const Json& b, const std::function<void(size_t)>& spend) {
  spend(1);
  if (a.is_number() && b.is_number()) return CompareNumbers(a, b) == 0;
  if (a.type() != b.type()) return false;
  if (a.is_string()) {
    const auto& text = a.get_ref<const std::string&>();
    const auto& other = b.get_ref<const std::string&>();
    if (text.size() != other.size()) return false;
    spend(text.size() / 256);
    return text == other;
  }
  if (!a.is_structured()) return a == b;
  if (a.size() != b.size()) return false;
  if (a.is_array()) {
    return std::equal(a.begin(), a.end(), b.begin(),
                      [&](const Json& one, const Json& other) { return SameValue(one, other, spend); });
  }
  for (const auto& [key, value] : a.items()) {
    spend(1 + b.size() / 8);  // an ordered object looks at all its keys
    const auto other = b.find(key);
    if (other == b.end() || !SameValue(value, *other, spend)) return false;
  }
  return true;
}

bool IsWhole(const Json& value) {
  return value.is_number_integer() || (value.is_number_float() && std::isfinite(value.get<double>()) &&
                                       std::floor(value.get<double>()) == value.get<double>());
}

bool IsOfType(const Json& value, std::string_view type) {
  if (type == "integer") return IsWhole(value);
  return (type == "object" && value.is_object()) || (type == "array" && value.is_array()) ||
         (type == "string" && value.is_string()) || (type == "number" && value.is_number()) ||
         (type == "boolean" && value.is_boolean()) || (type == "null" && value.is_null());
}

int CompareNumbers(const Json& a, const Json& b) {
  const auto sign = [](auto x, auto y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (a.is_number_integer() && b.is_number_integer()) {
    const bool negative_a = !a.is_number_unsigned() && a.get<int64_t>() < 0;
    const bool negative_b = !b.is_number_unsigned() && b.get<int64_t>() < 0;
    if (negative_a != negative_b) return negative_a ? -1 : 1;
    if (negative_a) return sign(a.get<int64_t>(), b.get<int64_t>());
    return sign(a.get<uint64_t>(), b.get<uint64_t>());
  }
  return sign(a.get<double>(), b.get<double>());
}

bool IsMultiple(const Json& value, const Json& divisor) {
  const DecimalText number = DecimalOf(value);
  const DecimalText by = DecimalOf(divisor);
  if (number.digits == 0) return true;
  if (by.digits == 0) return false;
  int shift = number.exponent - by.exponent;
  if (shift >= 0) {
    Wide rest = number.digits % by.digits;
    for (; shift > 0 && rest != 0; --shift) rest = rest * 10 % by.digits;
    return rest == 0;
  }
  // The number's last digit is none of the divisor's places, and not 0.
  return false;
}

std::string ShownValue::Text() const {
  std::string text;
  Show(value, text);
  return text.substr(0, kMaxShown);
}

size_t CountValues(const Json& value) {
  size_t count = 1;
  if (value.is_structured()) {
    for (const Json& item : value) count += CountValues(item);
  }
  return count;
}

size_t LengthOf(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace coppice
