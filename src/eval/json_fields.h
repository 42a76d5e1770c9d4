// Structs as JSON objects. A struct lists its fields once, for both directions, in the order in which they
// are written:
//
//   template <IsA<Point> T, typename Field>
//   void Fields(T& point, const Field& field) {
//     field("x", point.x);
//     field("name", point.name);
//   }
//
// An empty optional, string or list is not written; a double that is NaN is written as null. Reading takes
// what is absent or null as not given.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace coppice {

template <typename T, typename Struct>
concept IsA = std::same_as<std::remove_const_t<T>, Struct>;

// What to do with a field whose value is of another kind than the struct's: throw an Error that names it, or
// take it as not given.
enum class WrongKind { kThrow, kSkip };

namespace json_fields {

using Json = nlohmann::ordered_json;

struct NoOp {
  template <typename T>
  void operator()(std::string_view, T&) const {}
};
template <typename T>
concept HasFields = requires(T& value) {
  Fields(value, NoOp());
};

inline bool IsWritten(const std::string& text) { return !text.empty(); }
template <typename T>
bool IsWritten(const std::vector<T>& list) {
  return !list.empty();
}
template <typename T>
bool IsWritten(const std::optional<T>& value) {
  return value.has_value();
}
template <typename T>
bool IsWritten(const T&) {
  return true;
}

template <typename T>
Json Write(const T& value);
template <typename T>
Json Write(const std::optional<T>& value) {
  return Write(*value);
}
template <typename T>
Json Write(const std::vector<T>& list) {
  Json json = Json::array();
  for (const T& item : list) json.push_back(Write(item));
  return json;
}
template <typename T>
Json Write(const T& value) {
  if constexpr (HasFields<const T>) {
    Json json;  // null if no field is written
    Fields(value, [&json](std::string_view name, const auto& field) {
      if (IsWritten(field)) json[std::string(name)] = Write(field);
    });
    return json;
  } else {
    return value;
  }
}

// Whether the value is of the right kind; it is changed only if so.
inline bool Read(const Json& json, bool& value, WrongKind) {
  if (json.is_boolean()) value = json.get<bool>();
  return json.is_boolean();
}
inline bool Read(const Json& json, std::string& value, WrongKind) {
  if (json.is_string()) value = json.get<std::string>();
  return json.is_string();
}
inline bool Read(const Json& json, int64_t& value, WrongKind) {
  if (json.is_number_integer()) value = json.get<int64_t>();
  return json.is_number_integer();
}
inline bool Read(const Json& json, double& value, WrongKind) {
  if (json.is_number()) value = json.get<double>();
  if (json.is_null()) value = NAN;
  return json.is_number() || json.is_null();
}
template <typename T>
bool Read(const Json& json, T& value, WrongKind wrong);
template <typename T>
bool Read(const Json& json, std::optional<T>& value, WrongKind wrong) {
  T read{};
  if (!Read(json, read, wrong)) return false;
  value = std::move(read);
  return true;
}
template <typename T>
bool Read(const Json& json, std::vector<T>& list, WrongKind wrong) {
  if (!json.is_array()) return false;
  std::vector<T> read(json.size());
  for (size_t i = 0; i < read.size(); ++i) {
    if (!Read(json[i], read[i], wrong)) return false;
  }
  list = std::move(read);
  return true;
}
template <typename T>
bool Read(const Json& json, T& value, WrongKind wrong) {
  if (!json.is_object()) return false;
  Fields(value, [&](std::string_view name, auto& field) {
    const auto found = json.find(std::string(name));
    if (found == json.end() || found->is_null()) return;
    if (!Read(*found, field, wrong) && wrong == WrongKind::kThrow)
      throw Error("'{}' holds a value of the wrong kind", name);
  });
  return true;
}

}  // namespace json_fields

template <json_fields::HasFields T>
nlohmann::ordered_json ToJson(const T& value) {
  return json_fields::Write(value);
}

// Throws Error where `json` is no object.
template <json_fields::HasFields T>
T FromJson(const nlohmann::ordered_json& json, WrongKind wrong = WrongKind::kThrow) {
  T value{};
  if (!json_fields::Read(json, value, wrong)) throw Error("is no JSON object");
  return value;
}

}  // namespace coppice
