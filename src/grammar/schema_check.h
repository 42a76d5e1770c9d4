// Checks values against JSON schemas (drafts 4 to 2020-12), in bounded time and memory.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace coppice {

struct SchemaFault {
  std::string path;  // a JSON pointer to the part of the value
  std::string message;
};

enum class SchemaDraft { k7, k2020 };

// Where the value does not fit the schema: at most `most` places; empty if it fits. `draft` is that of a
// schema without $schema. Formats are annotations, as the standard says, and unknown keywords and types say
// nothing. Throws Error if that cannot be told: a reference to another document, an expression that is none,
// or too much work.
std::vector<SchemaFault> CheckSchema(const nlohmann::ordered_json& schema,
                                     const nlohmann::ordered_json& value, size_t most = 8,
                                     SchemaDraft draft = SchemaDraft::k2020);

}  // namespace coppice
