// Parsing of untrusted JSON: limited depth, no duplicate keys, one-line errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "base/limits.h"

namespace coppice {

// Parses `text`; `source` names it in messages ("model/config.json"). Throws Error for nesting deeper than
// limits::kMaxJsonDepth, duplicate keys in an object, trailing bytes, numbers that overflow a double, and
// more than `max_values` values, because in memory a value can take many times the size of its text. By the
// memory that they need, a list, an object and a string count as 5 values, a member of an object as 6 more.
nlohmann::json ParseJson(std::string_view text, const std::string& source,
                         size_t max_values = limits::kMaxJsonValues);

// The keys that an object in ParseOrderedJson() may have: an ordered object finds a key by going through all
// of them.
inline constexpr size_t kMaxOrderedKeys = 1024;

// ParseJson() with the keys of objects in the order of the text. If `member` is not empty, only that member
// of the object is read; null if there is none. Throws Error for an object of more than kMaxOrderedKeys keys.
nlohmann::ordered_json ParseOrderedJson(std::string_view text, const std::string& source,
                                        size_t max_values = limits::kMaxJsonValues,
                                        std::string_view member = {});

// The member `member` of the object `checked`, which ParseJson() made of `text`, with the keys of objects in
// the order of the text; null if there is none. Throws Error, naming `source`, as ParseOrderedJson() does.
nlohmann::ordered_json OrderedMember(std::string_view text, const nlohmann::json& checked,
                                     const std::string& member, const std::string& source);

// Calls `use` with every string in the value, keys too.
template <typename Use>
void ForEachText(const nlohmann::ordered_json& value, const Use& use) {
  if (value.is_string()) use(value.get_ref<const std::string&>());
  if (!value.is_structured()) return;
  for (const auto& [key, item] : value.items()) {
    if (value.is_object()) use(key);
    ForEachText(item, use);
  }
}

// The value with `map` applied to every string in it, keys too.
template <typename Map>
nlohmann::ordered_json WithTexts(const nlohmann::ordered_json& value, const Map& map) {
  using nlohmann::ordered_json;
  if (value.is_string()) return map(value.get_ref<const std::string&>());
  if (!value.is_structured()) return value;
  ordered_json result = value.is_object() ? ordered_json::object() : ordered_json::array();
  for (const auto& [key, item] : value.items()) {
    if (value.is_object()) {
      result[map(key)] = WithTexts(item, map);
    } else {
      result.push_back(WithTexts(item, map));
    }
  }
  return result;
}

// Empties `value` without allocating memory. The library's own destructor allocates (3.11 flattens arrays and
// objects into a vector, to save stack), and a destructor that cannot allocate terminates the process.
// Recurses to the depth of the value.
template <typename Json>
void FreeJson(Json& value) noexcept {
  if (auto* array = value.template get_ptr<typename Json::array_t*>()) {
    for (Json& element : *array) FreeJson(element);
    array->clear();
  } else if (auto* object = value.template get_ptr<typename Json::object_t*>()) {
    for (auto& member : *object) FreeJson(member.second);
    object->clear();
  }
}

// Owns a JSON value and destroys it with FreeJson. For values that a client can make large, in a process that
// must survive running out of memory. A member instead of a base class, because the library would convert a
// derived class like any container.
template <typename Json>
class OwnedJson {
 public:
  OwnedJson() = default;
  OwnedJson(Json value) : value_(std::move(value)) {}
  OwnedJson(const OwnedJson&) = default;
  OwnedJson(OwnedJson&&) noexcept = default;
  OwnedJson& operator=(OwnedJson other) noexcept {
    value_.swap(other.value_);
    return *this;
  }
  ~OwnedJson() { FreeJson(value_); }

  Json& operator*() { return value_; }
  const Json& operator*() const { return value_; }
  Json* operator->() { return &value_; }
  const Json* operator->() const { return &value_; }
  Json Take() { return std::move(value_); }

 private:
  Json value_;
};

// Reads and parses a file of at most limits::kMaxJsonFileBytes.
nlohmann::json ReadJsonFile(const std::string& path);
// The same for what Python's json module may have written, with Infinity, -Infinity and NaN for numbers. Each
// becomes {"__float__": "Infinity"} and the like, which is how transformers writes them in JSON.
nlohmann::json ReadPythonJsonFile(const std::string& path);

}  // namespace coppice
