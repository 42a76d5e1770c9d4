// Readers of a model's description, for the parts of model/config.cpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.h"

namespace coppice {

[[noreturn]] inline void Refuse(const std::string& path, const std::string& key, const std::string& why) {
  throw Error("[model] {}: {} {}", path, key, why);
}

// Looks up a value of the file by key; nullopt if absent. Both formats use this reader.
struct KeyReader {
  std::string path;
  std::function<std::optional<int64_t>(const std::string&)> integer;
  std::function<std::optional<double>(const std::string&)> number;

  int64_t Count(const std::string& key, int64_t limit, std::optional<int64_t> fallback = std::nullopt) const {
    const std::optional<int64_t> value = integer(key);
    if (!value && !fallback) Refuse(path, key, "is missing");
    const int64_t v = value.value_or(fallback.value_or(0));
    if (v < 1 || v > limit) Refuse(path, key, fmt::format("= {} is not from 1 to {}", v, limit));
    return v;
  }
  double Positive(const std::string& key, double fallback) const {
    const double v = number(key).value_or(fallback);
    if (!std::isfinite(v) || v <= 0) Refuse(path, key, fmt::format("= {} is not a positive number", v));
    return v;
  }
};

// Looks up a value of config.json by key. A null value, or an empty key, counts as absent.
struct HfKeys {
  const nlohmann::json& json;
  std::string path;

  bool Has(const std::string& key) const {
    return !key.empty() && json.contains(key) && !json[key].is_null();
  }
  bool Flag(const char* key, bool fallback) const {
    if (!Has(key)) return fallback;
    if (!json[key].is_boolean()) Refuse(path, key, "is not true or false");
    return json[key].get<bool>();
  }
  std::string Text(const char* key) const {
    if (!Has(key)) return "";
    if (!json[key].is_string()) Refuse(path, key, "is not a string");
    return json[key].get<std::string>();
  }
  std::optional<int64_t> Integer(const std::string& key) const {
    if (!Has(key)) return std::nullopt;
    if (!json[key].is_number_integer()) Refuse(path, key, "is not a whole number");
    if (json[key].is_number_unsigned() && json[key].get<uint64_t>() > INT64_MAX)
      Refuse(path, key, "is too large");
    return json[key].get<int64_t>();
  }
  std::optional<double> Number(const std::string& key) const {
    if (!Has(key)) return std::nullopt;
    if (!json[key].is_number()) Refuse(path, key, "is not a number");
    return json[key].get<double>();
  }
};

}  // namespace coppice
