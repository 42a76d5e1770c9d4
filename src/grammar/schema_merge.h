// One schema that stands for two that both hold (allOf, and keywords beside $ref or anyOf).
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace coppice {

// Keywords that say nothing about a value.
bool IsAnnotation(std::string_view keyword);

// Throws Error where one schema cannot say both.
nlohmann::ordered_json MergeSchemas(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b);

// Whether no value fits both: different types, or objects that must have a member with different constants.
bool AreDisjoint(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b);

}  // namespace coppice
