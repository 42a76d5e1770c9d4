// One schema that stands for two that both hold (allOf, and keywords beside $ref or anyOf).
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

#include "grammar/schema_notes.h"

namespace coppice {

// Keywords that say nothing about a value.
bool IsAnnotation(std::string_view keyword);

// How many values MergeSchemas() copies, at the most; comparisons count less.
size_t MergingSteps(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b);

// Where one schema cannot say both, b's keyword is dropped (Throws Error if `notes` says so).
nlohmann::ordered_json MergeSchemas(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b,
                                    SchemaNotes& notes);

// Whether no value fits both: different types, or objects that must have a member with different constants.
// Calls `spend` as SameValue() does.
bool AreDisjoint(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b,
                 const std::function<void(size_t)>& spend);

}  // namespace coppice
