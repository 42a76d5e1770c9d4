// Access to fields of a tokenizer's JSON, with errors that name the file and the field.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace coppice {

// The value of `key` if `json` is an object that has it and it is not null; else null.
const nlohmann::json* FindField(const nlohmann::json& json, std::string_view key);

// Throws Error if the field is absent or not a string.
std::string StringField(const nlohmann::json& json, std::string_view key, const std::string& source);
// `fallback` if the field is absent or null. Throws Error for another type.
std::string StringField(const nlohmann::json& json, std::string_view key, const std::string& source,
                        const std::string& fallback);
bool BoolField(const nlohmann::json& json, std::string_view key, const std::string& source, bool fallback);
// Throws Error if the field is absent or not an array.
const nlohmann::json& ArrayField(const nlohmann::json& json, std::string_view key, const std::string& source);
// An integer from 0 to limits::kMaxVocab - 1. Throws Error for anything else; `what` names it.
int32_t TokenIdFrom(const nlohmann::json& json, std::string_view what, const std::string& source);

// Replaces every occurrence of `pattern` (not empty), from left to right.
std::string ReplaceAll(std::string_view text, std::string_view pattern, std::string_view content);

}  // namespace coppice
