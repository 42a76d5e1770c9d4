#include "grammar/schema_keywords.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/limits.h"
#include "grammar/json_text.h"
#include "grammar/number_range.h"
#include "grammar/schema_merge.h"
#include "grammar/schema_values.h"

namespace coppice {

using namespace grammar;  // of expressions

namespace {

using Json = nlohmann::ordered_json;

// Keywords that belong to a type of values, so that a schema without `type` means that type.
struct TypeKeywords {
  const char* type;
  std::vector<std::string_view> keywords;
};
const std::vector<TypeKeywords>& KeywordsOfTypes() {
  static const std::vector<TypeKeywords> kTypes{
      {"object",
       {"properties", "required", "additionalProperties", "minProperties", "maxProperties",
        "patternProperties"}},
      {"array", {"items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"}},
      {"string", {"minLength", "maxLength", "pattern", "format"}},
      {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}}};
  return kTypes;
}

constexpr double kMaxWritten = 1e16;  // numbers have at most 16 digits before the point
constexpr int kMostPlaces = 15;
constexpr int64_t kMostMultiples = 1000;

// n where the number is 10^-n; -1 if it is none.
int PlacesOf(double number) {
  for (int places = 0; places <= kMostPlaces; ++places) {
    if (number == std::stod("1e-" + std::to_string(places))) return places;
  }
  return -1;
}

// Numbers that are multiples; nullopt if that is not supported.
std::optional<Expr> Multiples(double divisor, const NumberBounds& bounds, bool whole) {
  const int places = PlacesOf(divisor);
  if (places >= 0 && (whole || places == 0))
    return bounds.low || bounds.high ? NumbersBetween(bounds, true) : JsonInteger();
  if (places > 0 && !bounds.low && !bounds.high)
    return Sequence({JsonInteger(), Optional(Sequence({Text("."), Repeat(Chars({{'0', '9'}}), 1, places)}))});
  if (!bounds.low || !bounds.high || divisor < 1 || std::floor(divisor) != divisor || divisor >= kMaxWritten)
    return std::nullopt;
  const double first = std::ceil(*bounds.low / divisor);
  const double last = std::floor(*bounds.high / divisor);
  if (last - first > static_cast<double>(kMostMultiples) || std::abs(first * divisor) >= kMaxWritten ||
      std::abs(last * divisor) >= kMaxWritten)
    return std::nullopt;
  std::vector<Expr> choices;
  for (auto i = static_cast<int64_t>(first); i <= static_cast<int64_t>(last); ++i) {
    const int64_t number = i * static_cast<int64_t>(divisor);
    const auto value = static_cast<double>(number);
    if ((value == *bounds.low && bounds.low_is_open) || (value == *bounds.high && bounds.high_is_open))
      continue;
    choices.push_back(Text(std::to_string(number)));
  }
  return Choice(std::move(choices));
}

}  // namespace

std::vector<std::string> SchemaTypes(const Json& schema, SchemaNotes& notes) {
  constexpr std::array kAll{"object", "array", "string", "number", "boolean", "null"};
  std::vector<std::string> types;
  if (schema.contains("type")) {
    const Json list = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
    for (const Json& type : list) {
      const bool known = type == "integer" || std::ranges::find(kAll, type) != kAll.end();
      if (known) {
        types.push_back(type);
        continue;
      }
      notes.Drop("type", fmt::format("type {} is none of JSON's", type.dump().substr(0, 40)));
      return {kAll.begin(), kAll.end()};
    }
    return types;
  }
  for (const TypeKeywords& type : KeywordsOfTypes()) {
    if (std::ranges::any_of(type.keywords,
                            [&](std::string_view keyword) { return schema.contains(keyword); }))
      types.emplace_back(type.type);
  }
  if (types.empty()) types.assign(kAll.begin(), kAll.end());
  return types;
}

bool HasKeywordsOf(const std::string& type, const Json& schema) {
  for (const TypeKeywords& known : KeywordsOfTypes()) {
    if (type != known.type) continue;
    return std::ranges::any_of(known.keywords,
                               [&](std::string_view keyword) { return schema.contains(keyword); });
  }
  return false;
}

bool HasTypedKeywords(const Json& schema) {
  return std::ranges::any_of(KeywordsOfTypes(),
                             [&](const TypeKeywords& known) { return HasKeywordsOf(known.type, schema); });
}

Expr SchemaValues(const Json& schema, SchemaChecker& checker) {
  const Json values = schema.contains("enum") ? schema["enum"] : Json::array({schema["const"]});
  if (!values.is_array() || values.empty()) throw Error("enum is not a list of values");
  const bool listed = std::ranges::all_of(schema.items(), [](const auto& item) {
    return item.key() == "enum" || item.key() == "const" || IsAnnotation(item.key());
  });
  Json rest = schema;
  rest.erase("enum");
  std::vector<Expr> choices;
  std::vector<SchemaFault> faults;
  for (const Json& value : values) {
    if ((!listed || schema.contains("const")) && !checker.Check(rest, value, 0, faults)) continue;
    choices.push_back(Text(value.dump()));
  }
  return Choice(std::move(choices));
}

int64_t SchemaCount(const Json& schema, const char* keyword, int64_t otherwise, SchemaNotes& notes) {
  if (!schema.contains(keyword)) return otherwise;
  const Json& value = schema[keyword];
  if (!value.is_number() || value.get<double>() < 0 || std::floor(value.get<double>()) != value.get<double>())
    throw Error("{} is not a whole number from 0", keyword);
  if (value.get<double>() > static_cast<double>(notes.most_repeats())) {
    notes.Drop(keyword, fmt::format("{} is above {}, which is not supported", keyword, notes.most_repeats()));
    return otherwise;
  }
  return static_cast<int64_t>(value.get<double>());
}

Expr SchemaNumber(const Json& schema, bool whole, SchemaNotes& notes) {
  NumberBounds bounds;
  const auto bound = [&](const char* keyword, const char* exclusive, std::optional<double>& value, bool& open,
                         int sign) {
    for (const char* name : {keyword, exclusive}) {
      if (!schema.contains(name) || schema[name].is_boolean()) continue;
      if (!schema[name].is_number()) throw Error("{} is not a number", name);
      const double here = schema[name].get<double>();
      const bool here_open = name == exclusive || (schema.contains(exclusive) && schema[exclusive] == true);
      if (!value || sign * here > sign * *value || (here == *value && here_open)) {
        value = here;
        open = here_open;
      }
    }
  };
  bound("minimum", "exclusiveMinimum", bounds.low, bounds.low_is_open, 1);
  bound("maximum", "exclusiveMaximum", bounds.high, bounds.high_is_open, -1);
  // Bounds beyond all numbers that are written, as 64-bit integers have them.
  const bool bounded = bounds.low || bounds.high;
  if (bounds.high && *bounds.high >= kMaxWritten) bounds.high.reset();
  if (bounds.low && *bounds.low <= -kMaxWritten) bounds.low.reset();
  if (schema.contains("multipleOf")) {
    const Json& divisor = schema["multipleOf"];
    if (divisor.is_number() && divisor.get<double>() > 0) {
      if (std::optional<Expr> multiples = Multiples(divisor.get<double>(), bounds, whole)) return *multiples;
    }
    notes.Drop("multipleOf",
               "multipleOf is supported for powers of ten, or whole numbers between two bounds");
  }
  if (bounded) return NumbersBetween(bounds, whole);
  return whole ? JsonInteger() : JsonNumber();
}

void DropKeywords(const Json& schema, SchemaNotes& notes) {
  for (const char* keyword :
       {"not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies", "propertyNames",
        "contains", "minContains", "maxContains", "uniqueItems", "unevaluatedProperties", "unevaluatedItems",
        "$dynamicRef", "$recursiveRef", "extends", "disallow"}) {
    if (schema.contains(keyword)) notes.Drop(keyword, fmt::format("{} is not supported", keyword));
  }
}

}  // namespace coppice
