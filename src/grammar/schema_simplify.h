// Keywords that mean nothing where they stand, or that others say as well.
#pragma once

#include <nlohmann/json.hpp>

namespace coppice {

// Whether a schema allows every value; annotations do not matter.
bool AllowsAll(const nlohmann::ordered_json& schema);

// Whether SimplifySchema() would change the schema.
bool CanSimplify(const nlohmann::ordered_json& schema);

// The same schema without keywords that allow everything; `false` if one allows nothing. Parts stay as they
// are.
nlohmann::ordered_json SimplifySchema(nlohmann::ordered_json schema);

// The same object's schema without patternProperties: its own properties obey the patterns that their names
// match, and others are not allowed. Throws Error for expressions that are none.
nlohmann::ordered_json PropertiesOfPatterns(const nlohmann::ordered_json& schema);

}  // namespace coppice
