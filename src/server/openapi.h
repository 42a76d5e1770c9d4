// The server's interface as an OpenAPI 3.1 document, and as a page. Paths are those of the server's own table
// of routes, and the fields of requests those of the parser's (parameter_table.h).
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "server/parameters.h"

namespace coppice {

// What a request's body has.
enum class BodyForm {
  kNone,
  kFields,     // the fields of RouteText::fields
  kPlan,       // "prompt_tokens" and "prune"
  kSlot,       // "filename"
  kModel,      // "model"
  kFile,       // the bytes of a PDF or DOCX file
  kMessages,   // Anthropic's form of a chat
  kResponses,  // OpenAI's newer form of one
};

struct RouteText {
  std::string_view method;  // "GET"
  std::string_view path;    // as the server's table has it
  std::string_view shown;   // with names for what varies, "/slots/{id}"
  std::string_view summary;
  BodyForm body = BodyForm::kNone;
  Route fields = kCompletions;
  bool is_open = false;  // needs no key
  bool streams = false;  // answers with events where the request's `stream` is true
  std::string_view type = "application/json";
};
std::span<const RouteText> RouteTexts();

// Of a field that has a reader of its own, by its first name: the JSON schema of what the reader takes. Null
// if there is none.
const char* SchemaOfReader(std::string_view name);

// The schema of a request's body on a route. `defaults`: of this server.
nlohmann::ordered_json FieldsSchema(Route route, const Parameters& defaults);

// `version`: the program's.
nlohmann::ordered_json OpenApiDocument(const std::string& version, const Parameters& defaults);

// A page that lists the document's routes. It has no script.
std::string DocsPage(const nlohmann::ordered_json& document);

}  // namespace coppice
