// JSON from outside: bounded depth, no duplicate keys, one-line errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace coppice {

// Parses `text`. `source` names it in messages ("model/config.json"). Refuses nesting beyond
// limits::kMaxJsonDepth, duplicate keys in one object, trailing bytes, numbers that overflow a double, and more
// than `max_values` values: each takes many times the memory of its shortest text.
nlohmann::json ParseJson(std::string_view text, const std::string& source, size_t max_values = SIZE_MAX);

// Reads and parses a file of at most limits::kMaxJsonFileBytes.
nlohmann::json ReadJsonFile(const std::string& path);

}  // namespace coppice
