// JSON from outside: bounded depth, no duplicate keys, one-line errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace coppice {

// Parses `text`. `source` names it in messages ("model/config.json"). Refuses nesting beyond
// limits::kMaxJsonDepth, duplicate keys in one object, trailing bytes, numbers that overflow a double, and more
// than `max_values` values: each takes many times the memory of its shortest text.
nlohmann::json ParseJson(std::string_view text, const std::string& source, size_t max_values = SIZE_MAX);

// Empties `value` without asking for memory. The library's own destructor asks (3.11 flattens arrays and objects onto a
// vector, to spare the stack), and a destructor that gets none ends the process. Recurses as deep as the value is.
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

// A value that ends so: for what a client can make large, in a process that goes on when memory has run out. It holds the
// value and is none: the library would convert a derived class as it converts any container.
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

}  // namespace coppice
