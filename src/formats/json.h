// JSON from outside: bounded depth, no duplicate keys, one-line errors.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace coppice {

// Parses `text`. `source` names it in messages ("model/config.json"). Refuses nesting beyond
// limits::kMaxJsonDepth, duplicate keys in one object, trailing bytes, and numbers that overflow a double.
nlohmann::json ParseJson(std::string_view text, const std::string& source);

// Reads and parses a file of at most limits::kMaxJsonFileBytes.
nlohmann::json ReadJsonFile(const std::string& path);

}  // namespace coppice
