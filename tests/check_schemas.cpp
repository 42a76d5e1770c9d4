// Checks values against JSON schemas, for schema_check_test.py, and makes grammars of them. Reads a JSON
// array from standard input, each element with a "schema" and "values". Writes an array: "fits" has true,
// false or an error's text for each value; "refused" is the error of a grammar for answers in this form, or
// null; "not_enforced" are the keywords that a grammar for arguments leaves out.
#include <fmt/core.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "grammar/automaton.h"
#include "grammar/json_schema.h"
#include "grammar/rules.h"
#include "grammar/schema_check.h"

namespace {

using Json = nlohmann::ordered_json;

Json Fits(const Json& schema, const Json& value) {
  try {
    return coppice::CheckSchema(schema, value).empty();
  } catch (const coppice::Error& error) {
    return error.what();
  }
}

Json Refused(const Json& schema) {
  try {
    coppice::grammar::Rules rules;
    coppice::AddJsonSchema(schema, rules);
    return nullptr;
  } catch (const coppice::Error& error) {
    return error.what();
  }
}

Json NotEnforced(const Json& schema) {
  std::vector<std::string> keywords;
  try {
    coppice::grammar::Rules rules;
    coppice::AddArguments(schema, rules, keywords);
    return keywords;
  } catch (const coppice::Error& error) {
    return error.what();
  }
}

}  // namespace

int main() {
  Json answers = Json::array();
  for (const Json& request : Json::parse(std::cin)) {
    Json fits = Json::array();
    for (const Json& value : request["values"]) fits.push_back(Fits(request["schema"], value));
    answers.push_back({{"fits", fits},
                       {"refused", Refused(request["schema"])},
                       {"not_enforced", NotEnforced(request["schema"])}});
  }
  fmt::print("{}\n", answers.dump(-1, ' ', false, Json::error_handler_t::replace));
}
