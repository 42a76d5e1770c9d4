// The string keywords of JSON schemas.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "grammar/rules.h"
#include "grammar/schema_notes.h"

namespace coppice {

// A JSON string of `character`s that keeps minLength, maxLength, pattern and format. Formats that are not
// date, time, date-time, uuid, ipv4 or email are annotations, and so is a format beside a pattern.
// Combinations that are not supported go to `notes`.
grammar::Expr SchemaString(const nlohmann::ordered_json& schema, const grammar::Expr& character,
                           SchemaNotes& notes);

// A JSON string, without escapes, that is none of `names`.
grammar::Expr OtherName(const std::vector<std::string>& names);

}  // namespace coppice
