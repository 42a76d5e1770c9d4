// Keywords of JSON schemas that need no other schema.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "grammar/rules.h"

namespace coppice {

// The types that a schema allows, by `type`, else by its keywords, else all.
std::vector<std::string> SchemaTypes(const nlohmann::ordered_json& schema);
// Whether it has keywords that belong to values of this type.
bool HasKeywordsOf(const std::string& type, const nlohmann::ordered_json& schema);
// const and enum. The values must be of the schema's types; other keywords beside them are refused.
grammar::Expr SchemaValues(const nlohmann::ordered_json& schema);
grammar::Expr SchemaNumber(const nlohmann::ordered_json& schema, bool whole);
// A number of items or members.
int64_t SchemaCount(const nlohmann::ordered_json& schema, const char* keyword, int64_t otherwise);
// Throws Error for keywords that a grammar cannot keep.
void RefuseKeywords(const nlohmann::ordered_json& schema);

}  // namespace coppice
