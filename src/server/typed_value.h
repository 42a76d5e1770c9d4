// Arguments of calls that a model writes as bare text, with the types that the function's schema gives them.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

// The schema of a function's argument: that of `properties`, with local references followed. Null if there is
// none. `function`: {"name", "parameters"}.
nlohmann::ordered_json ArgumentSchema(const nlohmann::ordered_json& function, std::string_view argument);

// An argument of a function that has properties.
struct Property {
  std::string name;
  bool is_required = false;
};
std::vector<Property> PropertiesOf(const nlohmann::ordered_json& function);
// Whether arguments beside the properties may come: those of functions that name none.
bool IsOpen(const nlohmann::ordered_json& function);

// The types that a schema allows by its own words and those of its alternatives; empty if it says nothing.
std::set<std::string, std::less<>> SchemaTypes(const nlohmann::ordered_json& schema);

// The value that the text is under its schema: a text where that allows no other type; else JSON, or Python's
// words for it, where that is of an allowed type; else the text. Without a schema objects and lists are read.
nlohmann::ordered_json TypedValue(std::string_view text, const nlohmann::ordered_json& schema);

// A value in Python's notation, or in Gemma 4's, where <|"|> quotes texts and keys need no quotes: the whole
// of `text`. Discarded (is_discarded()) if it is none, or nested too deeply. `bare`: a word may be a text.
nlohmann::ordered_json ParseLiteral(std::string_view text, bool bare = false);

// The same at the front of a text, which loses what was read.
nlohmann::ordered_json TakeLiteral(std::string_view& text, bool bare);
// A quoted text, or a word of letters, digits, '_', '-' and '.'.
nlohmann::ordered_json TakeKey(std::string_view& text);
void SkipBlanks(std::string_view& text);
bool SkipText(std::string_view& text, std::string_view wanted);

}  // namespace coppice
