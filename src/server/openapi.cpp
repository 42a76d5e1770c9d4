#include "server/openapi.h"

#include <fmt/format.h>

#include <map>

namespace coppice {

namespace {

using nlohmann::ordered_json;

const char* NameOf(Route route) {
  switch (route) {
    case kChat:
      return "ChatRequest";
    case kNative:
      return "NativeCompletionRequest";
    case kTokenize:
      return "TokenizeRequest";
    case kDetokenize:
      return "DetokenizeRequest";
    case kApplyTemplate:
      return "ApplyTemplateRequest";
    case kEmbeddings:
      return "EmbeddingsRequest";
    default:
      return "CompletionRequest";
  }
}

// Bodies that are no table's. What Anthropic's and OpenAI's newer form have in common with a chat is read by
// its fields, so they take those as well.
ordered_json OwnSchemas() {
  return {
      {"PlanRequest", ordered_json::parse(R"({"type": "object", "required": ["prompt_tokens"], "properties": {
         "prompt_tokens": {"type": "integer", "minimum": 1, "description": "up to the server's context"},
         "prune": {"type": ["boolean", "string", "object", "null"]}}})")},
      {"SlotRequest",
       ordered_json::parse(R"({"type": "object", "description": "for save and restore", "properties": {
         "filename": {"type": "string", "pattern": "^[0-9A-Za-z_-][0-9A-Za-z._-]{0,127}$"}}})")},
      {"ModelRequest", ordered_json::parse(R"({"type": "object", "required": ["model"], "properties": {
         "model": {"type": "string", "description": "one of those that GET /v1/models lists"}}})")},
      {"FileRequest", ordered_json::parse(R"({"type": "string", "format": "binary"})")},
      {"MessagesRequest", ordered_json::parse(R"({"type": "object", "required": ["messages"],
         "description": "Fields of ChatRequest that have no other form here work, too.", "properties": {
         "messages": {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["role", "content"],
           "properties": {"role": {"enum": ["user", "assistant", "system"]}, "content": {"type": ["string", "array"]}}}},
         "system": {"type": ["string", "array", "null"]},
         "max_tokens": {"type": ["integer", "null"], "minimum": 1},
         "stop_sequences": {"type": ["array", "null"], "items": {"type": "string"}},
         "tools": {"type": ["array", "null"], "items": {"type": "object"}},
         "tool_choice": {"type": ["object", "null"], "properties": {"type": {"enum": ["auto", "any", "tool", "none"]}}},
         "output_config": {"type": ["object", "null"]},
         "stream": {"type": ["boolean", "null"]}}})")},
      {"ResponsesRequest", ordered_json::parse(R"({"type": "object", "required": ["input"],
         "description": "Fields of ChatRequest that have no other form here work, too. Nothing is stored.", "properties": {
         "input": {"type": ["string", "array"], "items": {"type": "object"}},
         "instructions": {"type": ["string", "null"]},
         "max_output_tokens": {"type": ["integer", "null"], "minimum": -1},
         "tools": {"type": ["array", "null"], "items": {"type": "object"}},
         "tool_choice": {"type": ["string", "object", "null"]},
         "text": {"type": ["object", "null"]},
         "stream": {"type": ["boolean", "null"]}}})")},
      {"Error", ordered_json::parse(
                    R"({"type": "object", "description": "Routes under /v1/messages have Anthropic's form.",
         "required": ["error"], "properties": {"error": {"type": "object", "properties": {
         "code": {"type": ["integer", "string", "null"]}, "message": {"type": "string"}, "type": {"type": "string"},
         "param": {"type": ["string", "null"]}}}}})")}};
}

std::string BodyOf(const RouteText& route) {
  switch (route.body) {
    case BodyForm::kFields:
      return NameOf(route.fields);
    case BodyForm::kPlan:
      return "PlanRequest";
    case BodyForm::kSlot:
      return "SlotRequest";
    case BodyForm::kModel:
      return "ModelRequest";
    case BodyForm::kFile:
      return "FileRequest";
    case BodyForm::kMessages:
      return "MessagesRequest";
    case BodyForm::kResponses:
      return "ResponsesRequest";
    case BodyForm::kNone:
      break;
  }
  return "";
}

ordered_json Refer(const std::string& name) { return {{"$ref", "#/components/schemas/" + name}}; }

ordered_json Responses(const RouteText& route) {
  ordered_json content = {{std::string(route.type), ordered_json::object()}};
  const ordered_json object = {
      {"schema", {{"type", route.type == "application/json" ? "object" : "string"}}}};
  content[std::string(route.type)] = object;
  // llama.cpp's routes answer several prompts with a list.
  if (route.type == "application/json" && !route.path.starts_with("/v1/"))
    content["application/json"]["schema"]["type"] = {"object", "array"};
  if (route.streams) content["text/event-stream"] = {{"schema", {{"type", "string"}}}};
  return {{"200", {{"description", "The answer"}, {"content", content}}},
          {"default",
           {{"description", "A refusal or a failure; the status says which"},
            {"content", {{"application/json", {{"schema", Refer("Error")}}}}}}}};
}

// What varies in a path, and what a query may be.
ordered_json ParametersOf(const RouteText& route) {
  ordered_json list = ordered_json::array();
  const size_t open = route.shown.find('{');
  if (open == std::string_view::npos) return list;
  const std::string name(route.shown.substr(open + 1, route.shown.find('}') - open - 1));
  list.push_back({{"name", name}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}});
  if (route.body == BodyForm::kSlot) {
    list.push_back({{"name", "action"},
                    {"in", "query"},
                    {"required", true},
                    {"schema", {{"enum", {"save", "restore", "erase"}}}}});
  }
  return list;
}

ordered_json Operation(const RouteText& route) {
  ordered_json operation = {{"summary", std::string(route.summary)}};
  if (route.is_open) operation["security"] = ordered_json::array();
  if (ordered_json parameters = ParametersOf(route); !parameters.empty())
    operation["parameters"] = std::move(parameters);
  if (const std::string body = BodyOf(route); !body.empty()) {
    const char* type = route.body == BodyForm::kFile ? "application/octet-stream" : "application/json";
    operation["requestBody"] = {{"required", route.body != BodyForm::kSlot},
                                {"content", {{type, {{"schema", Refer(body)}}}}}};
  }
  operation["responses"] = Responses(route);
  return operation;
}

std::string Lower(std::string_view method) {
  std::string lower;
  for (const char c : method) lower += static_cast<char>(c | 0x20);  // letters only
  return lower;
}

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

ordered_json OpenApiDocument(const std::string& version, const Parameters& defaults) {
  ordered_json paths = ordered_json::object();
  for (const RouteText& route : RouteTexts())
    paths[std::string(route.shown)][Lower(route.method)] = Operation(route);
  ordered_json schemas = ordered_json::object();
  for (const Route route : kRoutes) schemas[NameOf(route)] = FieldsSchema(route, defaults);
  schemas.update(OwnSchemas());
  return {{"openapi", "3.1.0"},
          {"info",
           {{"title", "coppice"},
            {"version", version},
            {"description",
             "A field that is null counts as absent. Unknown fields are ignored, and named in the reply's "
             "ignored_parameters. docs/server.md has the meaning of each field."}}},
          {"security", ordered_json::array({{{"bearer", ordered_json::array()}},
                                            {{"header", ordered_json::array()}},
                                            ordered_json::object()})},
          {"paths", paths},
          {"components",
           {{"securitySchemes",
             {{"bearer", {{"type", "http"}, {"scheme", "bearer"}}},
              {"header", {{"type", "apiKey"}, {"in", "header"}, {"name", "X-Api-Key"}}}}},
            {"schemas", schemas}}}};
}

std::string DocsPage(const ordered_json& document) {
  std::string rows;
  for (const auto& [path, operations] : document["paths"].items()) {
    for (const auto& [method, operation] : operations.items()) {
      std::string name = method;
      for (char& c : name) c = static_cast<char>(c & ~0x20);
      const bool open = operation.contains("security");
      rows += fmt::format("<tr><td>{}</td><td><code>{}</code></td><td>{}{}</td></tr>\n", name, Escaped(path),
                          Escaped(operation["summary"].get<std::string>()), open ? " (needs no key)" : "");
    }
  }
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>coppice: "
      "routes</title>\n"
      "<link rel=\"stylesheet\" href=\"web/lib/base.css\">\n</head>\n<body>\n<h1>Routes</h1>\n"
      "<p><a href=\"openapi.json\">openapi.json</a> has the fields of each request, as an OpenAPI 3.1 "
      "document. If the server has keys, it needs one.</p>\n"
      "<table>\n<thead><tr><th>Method</th><th>Path</th><th>What</th></tr></thead>\n<tbody>\n{}</tbody>\n"
      "</table>\n</body>\n</html>\n",
      rows);
}

}  // namespace coppice
