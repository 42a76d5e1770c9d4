// JSON schemas and values that are checked against them: a line with the schema, then the value.
#include <algorithm>

#include "formats/json.h"
#include "fuzz/fuzz_support.h"
#include "fuzz/fuzz_target.h"
#include "grammar/schema_check.h"

namespace coppice {
namespace {

std::vector<std::string> Seeds() {
  return {
      R"({"type": "object", "properties": {"a": {"multipleOf": 0.1}}, "required": ["a"], "unevaluatedProperties": false})"
      "\n"
      R"({"a": 0.3, "b": [1, 1.0]})",
      R"({"anyOf": [{"items": {"$ref": "#"}, "uniqueItems": true}, {"pattern": "^(a|b)+$"}, {"not": {"type": "number"}}]})"
      "\n"
      R"([["ab"], [2, "c"], {}])",
      R"({"$id": "a/b", "$defs": {"s": {"$anchor": "t", "minLength": 1}}, "patternProperties": {"^x": {"$ref": "#t"}}, )"
      R"("if": {"minProperties": 2}, "then": {"dependentRequired": {"x": ["y"]}}, "else": {"propertyNames": {"const": "x"}}})"
      "\n"
      R"({"x": "1", "y": null})"};
}

bool Run(std::string_view input) {
  return Accepts([&] {
    const size_t end = std::min(input.find('\n'), input.size());
    const OwnedJson<nlohmann::ordered_json> schema = ParseOrderedJson(input.substr(0, end), "schema", 10'000);
    const OwnedJson<nlohmann::ordered_json> value =
        ParseOrderedJson(input.substr(std::min(end + 1, input.size())), "value", 10'000);
    constexpr size_t kMost = 8;
    const std::vector<SchemaFault> faults = CheckSchema(*schema, *value, kMost);
    if (faults.size() > kMost) abort();
    for (const SchemaFault& fault : faults) {
      if (fault.message.empty() || fault.message.size() > 200 || fault.path.size() > 200) abort();
    }
  });
}

}  // namespace

FuzzTarget SchemaCheckTarget() {
  return {"schema_check",
          Seeds,
          {"\"type\":",
           "\"$ref\":",
           "\"#\"",
           "\"#/$defs/s\"",
           "\"$defs\":",
           "\"$id\":",
           "\"$anchor\":",
           "\"$dynamicRef\":",
           "\"enum\":",
           "\"const\":",
           "\"anyOf\":",
           "\"oneOf\":",
           "\"allOf\":",
           "\"not\":",
           "\"if\":",
           "\"then\":",
           "\"pattern\":",
           "\"(a|a)*b\"",
           "\"patternProperties\":",
           "\"properties\":",
           "\"required\":",
           "\"contains\":",
           "\"minContains\":",
           "\"uniqueItems\":",
           "\"items\":",
           "\"prefixItems\":",
           "\"unevaluatedItems\":",
           "\"unevaluatedProperties\":",
           "\"dependentSchemas\":",
           "\"multipleOf\":",
           "1e-300",
           "\"propertyNames\":",
           "true",
           "false",
           "{}",
           "[]",
           "\n"},
          Run};
}

}  // namespace coppice
