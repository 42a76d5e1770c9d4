// Keywords of JSON schemas that need no other schema.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "grammar/rules.h"
#include "grammar/schema_checker.h"
#include "grammar/schema_notes.h"

namespace coppice {

// The types that a schema allows, by `type`, else by its keywords, else all. A type that JSON does not have
// goes to `notes`.
std::vector<std::string> SchemaTypes(const nlohmann::ordered_json& schema, SchemaNotes& notes);
// Whether it has keywords that belong to values of some type.
bool HasTypedKeywords(const nlohmann::ordered_json& schema);
// Whether it has keywords that belong to values of this type.
bool HasKeywordsOf(const std::string& type, const nlohmann::ordered_json& schema);
// const and enum: those of the values that fit the schema. `checker`: of the root that it is a part of.
grammar::Expr SchemaValues(const nlohmann::ordered_json& schema, SchemaChecker& checker);
grammar::Expr SchemaNumber(const nlohmann::ordered_json& schema, bool whole, SchemaNotes& notes);
// A number of items, members or characters. One above `notes.most_repeats()` is dropped.
int64_t SchemaCount(const nlohmann::ordered_json& schema, const char* keyword, int64_t otherwise,
                    SchemaNotes& notes);
// Notes keywords that a grammar cannot keep.
void DropKeywords(const nlohmann::ordered_json& schema, SchemaNotes& notes);

}  // namespace coppice
