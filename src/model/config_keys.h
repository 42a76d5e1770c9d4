// Readers of a model's description, for the parts of model/config.cpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

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
  std::function<std::optional<std::vector<int64_t>>(const std::string&)> list;  // nullopt too if it is none

  int64_t Count(const std::string& key, int64_t limit, std::optional<int64_t> fallback = std::nullopt) const {
    const std::optional<int64_t> value = integer(key);
    if (!value && !fallback) Refuse(path, key, "is missing");
    return CheckedCount(key, value.value_or(fallback.value_or(0)), limit);
  }
  // A count of each layer: a list, one for all, or `fallback` [layers] unless it is empty.
  std::vector<int64_t> Counts(const std::string& key, int64_t limit, int layers,
                              const std::vector<int64_t>& fallback = {}) const {
    const std::optional<std::vector<int64_t>> values = ListOf(key, layers);
    if (!fallback.empty() && !Has(key)) {
      for (const int64_t v : fallback) CheckedCount(key, v, limit);
      return fallback;
    }
    if (!values) return std::vector<int64_t>(static_cast<size_t>(layers), Count(key, limit));
    for (size_t l = 0; l < values->size(); ++l)
      CheckedCount(fmt::format("{}[{}]", key, l), (*values)[l], limit);
    return *values;
  }
  // A list with an entry for each layer; nullopt if the key is absent or has one value for all.
  std::optional<std::vector<int64_t>> ListOf(const std::string& key, int layers) const {
    std::optional<std::vector<int64_t>> values = list(key);
    if (values && std::ssize(*values) != layers)
      Refuse(path, key, fmt::format("has {} entries for {} layers", values->size(), layers));
    return values;
  }
  bool Has(const std::string& key) const { return list(key) || integer(key); }
  double Positive(const std::string& key, double fallback) const {
    const double v = number(key).value_or(fallback);
    if (!std::isfinite(v) || v <= 0) Refuse(path, key, fmt::format("= {} is not a positive number", v));
    return v;
  }

 private:
  int64_t CheckedCount(const std::string& key, int64_t v, int64_t limit) const {
    if (v < 1 || v > limit) Refuse(path, key, fmt::format("= {} is not from 1 to {}", v, limit));
    return v;
  }
};

// Looks up a value of config.json by key. A null value, or an empty key, counts as absent.
struct HfKeys {
  const nlohmann::json& json;
  std::string path;
  std::set<std::string>* asked = nullptr;  // collects the keys that the reader asks for; may be null

  bool Has(const std::string& key) const {
    if (asked != nullptr) asked->insert(key);
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
  // nullopt too if the value is no list.
  std::optional<std::vector<int64_t>> Integers(const std::string& key) const {
    if (!Has(key) || !json[key].is_array()) return std::nullopt;
    std::vector<int64_t> values;
    for (const nlohmann::json& value : json[key]) {
      if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX))
        Refuse(path, key, "holds a value that is not a whole number");
      values.push_back(value.get<int64_t>());
    }
    return values;
  }
  std::optional<double> Number(const std::string& key) const {
    if (!Has(key)) return std::nullopt;
    if (!json[key].is_number()) Refuse(path, key, "is not a number");
    return json[key].get<double>();
  }
};

}  // namespace coppice
