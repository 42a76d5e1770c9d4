// The document against the server's routes and the parser's fields.
#include "server/openapi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "server/errors.h"
#include "server/server.h"

namespace coppice::openapi_test {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using testing::HasSubstr;
using testing::Not;

using Names = std::set<std::pair<std::string, std::string>>;

TEST(OpenApi, HasEveryRouteAndNoOther) {
  Names served;
  for (const Server::Row& row : Server::Rows()) served.emplace(row.method, row.path);
  Names told;
  for (const RouteText& text : RouteTexts()) told.emplace(text.method, text.path);
  EXPECT_EQ(told, served);
  EXPECT_EQ(RouteTexts().size(), Server::Rows().size()) << "a route stands twice";
  const ordered_json document = OpenApiDocument("1.2.3", {});
  Names shown;
  for (const auto& [path, operations] : document["paths"].items()) {
    for (const auto& [method, operation] : operations.items()) {
      EXPECT_FALSE(operation["summary"].get<std::string>().empty());
      shown.emplace(method, path);
    }
  }
  EXPECT_EQ(shown.size(), served.size());
  EXPECT_EQ(document["info"]["version"], "1.2.3");
}

std::vector<std::string> NamesOf(const Field& field) {
  std::vector<std::string> names(1);
  for (const char c : field.names) {
    if (c == ' ') {
      names.emplace_back();
    } else {
      names.back() += c;
    }
  }
  return names;
}

TEST(OpenApi, HasEveryFieldOfTheParserAndNoOther) {
  for (const Route route : kRoutes) {
    std::set<std::string> read;
    for (const Field& field : Fields()) {
      if ((field.routes & route) == 0) continue;
      for (const std::string& name : NamesOf(field)) read.insert(name);
    }
    std::set<std::string> told;
    const ordered_json properties = FieldsSchema(route, {})["properties"];
    for (const auto& [name, schema] : properties.items()) told.insert(name);
    EXPECT_EQ(told, read) << route;
  }
}

// A request in which every field matters.
json BodyOf(Route route) {
  json body = {{"temperature", 1}, {"xtc_probability", 0.5}, {"dry_multiplier", 1}, {"stream", true}};
  if (route == kChat || route == kApplyTemplate) {
    body["messages"] = {{{"role", "user"}, {"content", "Hello"}}};
    body["tools"] = {
        {{"type", "function"}, {"function", {{"name", "f"}, {"parameters", {{"type", "object"}}}}}}};
  }
  if (route == kChat) body["logprobs"] = true;
  if (route == kCompletions || route == kNative) body["prompt"] = "Once";
  if (route == kTokenize) body["content"] = "Once";
  if (route == kDetokenize) body["tokens"] = {1};
  if (route == kEmbeddings) body["input"] = "Once";
  return body;
}

// What the parser says to the field, beside those of BodyOf(); empty: nothing.
std::string Refusal(Route route, const Field& field, const std::string& name, const json& value) {
  json body = BodyOf(route);
  for (const std::string& other : NamesOf(field)) body.erase(other);
  if (name == "n_probs" || name == "logprobs") body.erase("top_logprobs");
  body[name] = value;
  try {
    ParseParameters(body.dump(), route, {});
    return "";
  } catch (const HttpError& error) {
    return error.fault().message;
  }
}

// JSON schema's names; a whole number is a "number", too.
std::set<std::string> TypesOf(const json& value) {
  if (value.is_number_integer()) return {"integer", "number"};
  if (value.is_number()) return {"number"};
  return {value.type_name()};
}

bool Allows(const ordered_json& schema, const json& value) {
  if (!schema.contains("type")) return true;
  const std::set<std::string> types = TypesOf(value);
  return std::ranges::any_of(
      schema["type"], [&](const ordered_json& type) { return types.contains(type.get<std::string>()); });
}

TEST(OpenApi, AllowsNoTypeThatTheParserRefuses) {
  const json probes[] = {true, 7, 0.5, "zz", json::array(), json::object()};
  int refused = 0;
  for (const Route route : kRoutes) {
    const ordered_json schema = FieldsSchema(route, {})["properties"];
    for (const Field& field : Fields()) {
      if ((field.routes & route) == 0) continue;
      for (const std::string& name : NamesOf(field)) {
        for (const json& probe : probes) {
          if (Allows(schema[name], probe)) continue;
          EXPECT_NE(Refusal(route, field, name, probe), "") << route << " " << name << " " << probe;
          ++refused;
        }
      }
    }
  }
  EXPECT_GT(refused, 500);
}

TEST(OpenApi, TheParserTakesWhatTheSchemaShows) {
  for (const Route route : kRoutes) {
    const ordered_json schema = FieldsSchema(route, {})["properties"];
    for (const Field& field : Fields()) {
      if ((field.routes & route) == 0) continue;
      const std::string name = NamesOf(field).front();
      const ordered_json& one = schema[name];
      std::vector<json> values;
      for (const ordered_json& example : one.value("examples", ordered_json::array())) {
        EXPECT_TRUE(Allows(one, json(example))) << name << " " << example;
        values.push_back(json(example));
      }
      for (const ordered_json& word : one.value("enum", ordered_json::array())) {
        if (name != "response_format") values.push_back(json(word));
      }
      for (const char* limit : {"default", "minimum", "maximum"}) {
        const bool is_number = one.contains(limit) && one[limit].is_number();
        if (is_number && !(name == "best_of" && limit != std::string("default")))
          values.push_back(json(one[limit]));
      }
      values.push_back(nullptr);
      if (name == "prompt" || name == "messages" || name == "content" || name == "tokens" || name == "input")
        values.pop_back();  // the request needs them
      for (const json& value : values)
        EXPECT_EQ(Refusal(route, field, name, value), "") << route << " " << name << " " << value;
    }
  }
}

TEST(OpenApi, RangesAreThoseOfTheParser) {
  int checked = 0;
  for (const Field& field : Fields()) {
    const bool is_number = field.target.index() == 1 || field.target.index() == 2;
    if (!is_number) continue;
    for (const Route route : kRoutes) {
      if ((field.routes & route) == 0) continue;
      const std::string name = NamesOf(field).front();
      const ordered_json schema = FieldsSchema(route, {})["properties"][name];
      for (const auto& [limit, step] : std::map<std::string, double>{{"minimum", -1}, {"maximum", 1}}) {
        if (!schema.contains(limit)) continue;
        const json beyond = schema[limit].get<double>() + step;
        EXPECT_NE(Refusal(route, field, name, beyond), "") << name << " " << beyond;
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 50);
}

TEST(OpenApi, DefaultsAreTheServers) {
  Parameters defaults;
  defaults.sampling.temperature = 0.25;
  defaults.stream = true;
  const ordered_json schema = FieldsSchema(kChat, defaults)["properties"];
  EXPECT_EQ(schema["temperature"]["default"], 0.25);
  EXPECT_EQ(schema["stream"]["default"], true);
  EXPECT_EQ(schema["max_completion_tokens"]["x-same-as"], "max_tokens");
}

TEST(OpenApi, ThePageListsTheRoutes) {
  const std::string page = DocsPage(OpenApiDocument("", {}));
  for (const RouteText& route : RouteTexts())
    EXPECT_THAT(page, HasSubstr("<code>" + std::string(route.shown) + "</code>"));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("http://")));
}

}  // namespace
}  // namespace coppice::openapi_test
