#include "grammar/json_schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/limits.h"
#include "grammar/json_text.h"
#include "grammar/number_range.h"
#include "grammar/regex_rules.h"
#include "grammar/schema_merge.h"
#include "grammar/schema_strings.h"

namespace coppice {

using namespace grammar;  // of expressions

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxWork = 1'000'000;  // values looked at and copied
constexpr size_t kMaxRequired = 1024;   // names
constexpr int kMaxNesting = 128;        // with the schemas that merging makes

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

class Compiler {
 public:
  Compiler(const Json& root, const std::string& source, Rules& rules)
      : root_(root), source_(source), rules_(rules) {}

  Expr Root() {
    try {
      return Visit(root_, 0);
    } catch (const Error& error) {
      throw Error("{}: {}", source_, error.what());
    }
  }

  Expr AnyObject() {
    return RuleOf(object_, [&] { return ObjectOf(AnyValue()); });
  }

 private:
  static size_t CountValues(const Json& value) {
    size_t count = 1;
    if (value.is_structured()) {
      for (const Json& item : value) count += CountValues(item);
    }
    return count;
  }

  void Spend(size_t values = 1) {
    rules_.work += values;
    if (rules_.work > kMaxWork) throw Error("the schema is too large once its parts are merged");
  }

  int32_t NewRule(Expr expr) {
    if (rules_.rules.size() >= limits::kMaxGrammarRules)
      throw Error("more than {} rules", limits::kMaxGrammarRules);
    return rules_.Add(std::move(expr));
  }

  // A rule that is made when it is first used. It has its number before its text, which may use it.
  template <typename Make>
  Expr RuleOf(std::optional<int32_t>& number, const Make& make) {
    if (!number) {
      number = NewRule({});
      const int32_t rule = *number;
      Expr made = make();
      rules_.rules[static_cast<size_t>(rule)] = std::move(made);
    }
    return Rule(*number);
  }

  Expr Space() {
    return RuleOf(space_, [] { return JsonSpace(); });
  }
  Expr AnyString() {
    return RuleOf(string_, [] { return JsonQuoted(Repeat(JsonChar(), 0)); });
  }
  Expr AnyValue() {
    return RuleOf(value_, [&] {
      return Choice({AnyObject(), ArrayOf(AnyValue(), 0, kNoLimit), AnyString(), JsonNumber(), Text("true"),
                     Text("false"), Text("null")});
    });
  }

  // Members with any names.
  Expr ObjectOf(const Expr& value, int64_t least = 0, int64_t most = kNoLimit) {
    return Sequence({Text("{"), List(Member(AnyString(), value), least, most), Space(), Text("}")});
  }
  Expr ArrayOf(const Expr& item, int64_t least, int64_t most) {
    return Sequence({Text("["), List(item, least, most), Space(), Text("]")});
  }
  Expr Member(Expr key, Expr value) {
    return Sequence({std::move(key), Text(":"), Space(), std::move(value)});
  }
  // With commas between them.
  Expr List(const Expr& item, int64_t least, int64_t most) {
    if (most == 0) return Sequence({});
    const Expr rest = Repeat(Sequence({Text(","), Space(), item}), std::max<int64_t>(least - 1, 0),
                             most == kNoLimit ? kNoLimit : most - 1);
    Expr list = Sequence({Space(), item, rest});
    return least > 0 ? std::move(list) : Optional(std::move(list));
  }

  // What a value of the schema may be.
  Expr Visit(const Json& schema, int depth) {
    Spend();
    if (depth > kMaxNesting) throw Error("schemas in schemas are too deep");
    if (schema.is_boolean()) return schema.get<bool>() ? AnyValue() : Choice({});
    if (!schema.is_object()) throw Error("a schema is neither an object nor true or false");
    for (const char* keyword : {"allOf", "anyOf", "oneOf", "$ref"}) {
      if (schema.contains(keyword)) return VisitCombined(schema, keyword, depth);
    }
    Refuse(schema);
    if (schema.contains("const") || schema.contains("enum")) return Values(schema);
    std::vector<Expr> choices;
    for (const std::string& type : Types(schema)) choices.push_back(OfType(schema, type, depth));
    return choices.size() == 1 ? std::move(choices.front()) : Choice(std::move(choices));
  }

  Json Merged(const Json& a, const Json& b) {
    Spend(CountValues(a) + CountValues(b));
    return MergeSchemas(a, b);
  }

  static bool IsAlone(const Json& schema, std::string_view keyword) {
    return std::ranges::all_of(
        schema.items(), [&](const auto& item) { return item.key() == keyword || IsAnnotation(item.key()); });
  }

  Expr VisitCombined(const Json& schema, const std::string& keyword, int depth) {
    const Json& value = schema[keyword];
    const bool alone = IsAlone(schema, keyword);
    if (keyword == "$ref") return alone ? Reference(value, depth) : Visit(Resolved(schema, depth), depth + 1);
    if (!value.is_array() || value.empty()) throw Error("{} is not a list of schemas", keyword);
    Spend(CountValues(schema));
    Json rest = schema;
    rest.erase(keyword);
    if (keyword == "allOf") {
      Json merged = Resolved(rest, depth);
      for (const Json& part : value) merged = Merged(merged, Resolved(part, depth));
      return Visit(merged, depth + 1);
    }
    if (keyword == "oneOf") CheckDisjoint(value, depth);
    std::vector<Expr> choices;
    for (const Json& part : value)
      choices.push_back(
          Visit(alone ? part : Merged(Resolved(rest, depth), Resolved(part, depth)), depth + 1));
    return Choice(std::move(choices));
  }

  void CheckDisjoint(const Json& alternatives, int depth) {
    std::vector<Json> resolved;
    for (const Json& alternative : alternatives) resolved.push_back(Resolved(alternative, depth));
    for (size_t i = 0; i < resolved.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        Spend();
        if (!AreDisjoint(resolved[i], resolved[j])) {
          throw Error(
              "alternatives {} and {} of oneOf may hold at once, which a grammar cannot exclude: send anyOf",
              j, i);
        }
      }
    }
  }

  // The schema without $ref: what that refers to, merged with what stands beside it.
  Json Resolved(const Json& schema, int depth) {
    Spend(CountValues(schema));
    if (!schema.is_object() || !schema.contains("$ref")) return schema;
    if (depth > kMaxNesting) throw Error("$ref refers to itself");
    const Json target = Resolved(Target(schema["$ref"]), depth + 1);
    if (IsAlone(schema, "$ref")) return target;
    Json rest = schema;
    rest.erase("$ref");
    return Merged(rest, target);
  }

  const Json& Target(const Json& reference) {
    if (!reference.is_string() || !reference.get_ref<const std::string&>().starts_with('#'))
      throw Error("$ref {}: only references within the schema (#/...) are supported",
                  reference.dump().substr(0, 100));
    try {
      return root_.at(Json::json_pointer(Decoded(reference.get_ref<const std::string&>().substr(1))));
    } catch (const nlohmann::json::exception&) {
      throw Error("$ref {} refers to nothing", reference.dump().substr(0, 100));
    }
  }

  // Percent-encoded bytes of a fragment.
  static std::string Decoded(const std::string& text) {
    std::string decoded;
    for (size_t i = 0; i < text.size(); ++i) {
      unsigned byte = 0;
      if (text[i] == '%' && i + 2 < text.size() &&
          std::sscanf(text.c_str() + i + 1, "%2x", &byte) == 1) {  // NOLINT
        decoded += static_cast<char>(byte);
        i += 2;
      } else {
        decoded += text[i];
      }
    }
    return decoded;
  }

  // References may be recursive, so that each is a rule.
  Expr Reference(const Json& reference, int depth) {
    const Json& target = Target(reference);
    const auto [found, is_new] = references_.emplace(&target, 0);
    if (!is_new) return Rule(found->second);
    const int32_t rule = NewRule({});
    found->second = rule;
    Expr made = Visit(target, depth + 1);
    rules_.rules[static_cast<size_t>(rule)] = std::move(made);
    return Rule(rule);
  }

  static void Refuse(const Json& schema) {
    for (const char* keyword :
         {"not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies",
          "propertyNames", "contains", "minContains", "maxContains", "unevaluatedProperties",
          "unevaluatedItems", "$dynamicRef", "$recursiveRef", "extends", "disallow"}) {
      if (schema.contains(keyword)) throw Error("{} is not supported", keyword);
    }
    if (schema.contains("uniqueItems") && schema["uniqueItems"] != false)
      throw Error("uniqueItems is not supported");
  }

  std::vector<std::string> Types(const Json& schema) {
    static constexpr std::array kAll{"object", "array", "string", "number", "boolean", "null"};
    std::vector<std::string> types;
    if (schema.contains("type")) {
      const Json list = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
      for (const Json& type : list) {
        const bool known = type == "integer" || std::ranges::find(kAll, type) != kAll.end();
        if (!known) throw Error("type {} is none of JSON's", type.dump().substr(0, 40));
        types.push_back(type);
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

  Expr OfType(const Json& schema, const std::string& type, int depth) {
    if (type == "object") return Object(schema, depth);
    if (type == "array") return Array(schema, depth);
    if (type == "string") return HasAny("string", schema) ? SchemaString(schema) : AnyString();
    if (type == "integer") return Number(schema, true);
    if (type == "number") return Number(schema, false);
    if (type == "boolean") return Choice({Text("true"), Text("false")});
    return Text("null");
  }

  static bool HasAny(const std::string& type, const Json& schema) {
    for (const TypeKeywords& known : KeywordsOfTypes()) {
      if (type != known.type) continue;
      return std::ranges::any_of(known.keywords,
                                 [&](std::string_view keyword) { return schema.contains(keyword); });
    }
    return false;
  }

  // const and enum. The values must be of the schema's types; other keywords beside them are refused.
  Expr Values(const Json& schema) {
    for (const TypeKeywords& type : KeywordsOfTypes()) {
      for (const std::string_view keyword : type.keywords) {
        if (schema.contains(keyword)) throw Error("{} beside enum or const is not supported", keyword);
      }
    }
    Json values = schema.contains("enum") ? schema["enum"] : Json::array({schema["const"]});
    if (!values.is_array() || values.empty()) throw Error("enum is not a list of values");
    std::vector<Expr> choices;
    for (const Json& value : values) {
      Spend();
      if (schema.contains("const") && value != schema["const"]) continue;
      if (schema.contains("type") && !IsOfType(value, Types(schema))) continue;
      choices.push_back(Text(value.dump()));
    }
    return Choice(std::move(choices));
  }

  static bool IsOfType(const Json& value, const std::vector<std::string>& types) {
    const auto is = [&](const std::string& type) {
      return (type == "object" && value.is_object()) || (type == "array" && value.is_array()) ||
             (type == "string" && value.is_string()) || (type == "number" && value.is_number()) ||
             (type == "boolean" && value.is_boolean()) || (type == "null" && value.is_null()) ||
             (type == "integer" && value.is_number() &&
              std::floor(value.get<double>()) == value.get<double>());
    };
    return std::ranges::any_of(types, is);
  }

  static int64_t Count(const Json& schema, const char* keyword, int64_t otherwise) {
    if (!schema.contains(keyword)) return otherwise;
    const Json& value = schema[keyword];
    if (!value.is_number() || value.get<double>() < 0 || value.get<double>() > limits::kMaxGrammarRepeats ||
        std::floor(value.get<double>()) != value.get<double>()) {
      throw Error("{} is not a whole number from 0 to {}", keyword, limits::kMaxGrammarRepeats);
    }
    return static_cast<int64_t>(value.get<double>());
  }

  Expr Number(const Json& schema, bool whole) {
    if (schema.contains("multipleOf")) {
      if (schema["multipleOf"] != 1) throw Error("multipleOf is not supported, except 1");
      whole = true;
    }
    NumberBounds bounds;
    const auto bound = [&](const char* keyword, const char* exclusive, std::optional<double>& value,
                           bool& open, int sign) {
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
    if (bounds.low || bounds.high) return NumbersBetween(bounds, whole);
    return whole ? JsonInteger() : JsonNumber();
  }

  Expr Array(const Json& schema, int depth) {
    const bool old_form = schema.contains("items") && schema["items"].is_array();
    const Json first = old_form ? schema["items"] : schema.value("prefixItems", Json::array());
    const Json rest =
        old_form ? schema.value("additionalItems", Json(true)) : schema.value("items", Json(true));
    if (!first.is_array()) throw Error("prefixItems is not a list of schemas");
    const int64_t least = Count(schema, "minItems", 0);
    int64_t most = Count(schema, "maxItems", kNoLimit);
    const auto fixed = static_cast<int64_t>(first.size());
    if (rest == false) most = most == kNoLimit ? fixed : std::min(most, fixed);
    if (most != kNoLimit && most < least) return Choice({});
    if (fixed == 0) {
      Expr item = rest == false ? Choice({}) : Kept(Visit(rest, depth + 1));
      return ArrayOf(item, least, most);
    }
    return Tuple(first, rest, least, most, depth);
  }

  // The list may end behind each item from `least` on: item 0 (, item 1 (, item 2 ...)).
  Expr Tuple(const Json& first, const Json& rest, int64_t least, int64_t most, int depth) {
    const auto fixed = static_cast<int64_t>(first.size());
    Expr tail = Sequence({});
    if (rest != false && (most == kNoLimit || most > fixed)) {
      tail = Repeat(Sequence({Text(","), Space(), Kept(Visit(rest, depth + 1))}),
                    std::max<int64_t>(least - fixed, 0), most == kNoLimit ? kNoLimit : most - fixed);
    }
    for (int64_t i = most == kNoLimit ? fixed : std::min(fixed, most); i-- > 0;) {
      Expr item = Visit(first[static_cast<size_t>(i)], depth + 1);
      tail = Sequence({Space(), std::move(item), std::move(tail)});
      if (i > 0) tail = Sequence({Text(","), std::move(tail)});
      if (i >= least) tail = Optional(std::move(tail));
      tail = Rule(NewRule(std::move(tail)));
    }
    return Sequence({Text("["), std::move(tail), Space(), Text("]")});
  }

  // As a rule, because it is used more than once.
  Expr Kept(Expr expr) {
    return expr.kind == Expr::Kind::kRule ? std::move(expr) : Rule(NewRule(std::move(expr)));
  }

  struct Property {
    Expr member;
    bool required = false;
  };

  Expr Object(const Json& schema, int depth) {
    const Json properties = schema.value("properties", Json::object());
    const Json required = schema.value("required", Json::array());
    if (!properties.is_object()) throw Error("properties is not an object");
    if (!required.is_array() || required.size() > kMaxRequired)
      throw Error("required is not a list of at most {} names", kMaxRequired);
    const Json rest = schema.value("additionalProperties", Json(properties.empty() && required.empty()));
    const int64_t least = Count(schema, "minProperties", 0);
    const int64_t most = Count(schema, "maxProperties", kNoLimit);
    if (schema.contains("patternProperties") && !schema["patternProperties"].empty())
      return PatternObject(schema, properties.empty() && required.empty(), depth);
    std::vector<Property> members;
    std::vector<std::string> names;
    const auto add = [&](const std::string& name, const Json& value, bool is_required) {
      names.push_back(name);
      Expr member = Member(Text(Json(name).dump()), Visit(value, depth + 1));
      members.push_back({Kept(std::move(member)), is_required});
    };
    for (const auto& [name, value] : properties.items())
      add(name, value, std::ranges::find(required, Json(name)) != required.end());
    for (const Json& name : required) {
      if (!name.is_string()) throw Error("required holds something that is no name");
      if (!properties.contains(name.get_ref<const std::string&>()))
        add(name, schema.value("additionalProperties", Json(true)), true);
    }
    if (members.empty()) {
      if (rest == false) return least > 0 ? Choice({}) : Sequence({Text("{"), Space(), Text("}")});
      if (least > 1) throw Error("minProperties is not supported, except 0 and 1: names may repeat");
      return ObjectOf(Kept(Visit(rest, depth + 1)), least, most);
    }
    const auto all = static_cast<int64_t>(members.size());
    const auto must = std::ranges::count_if(members, [](const Property& p) { return p.required; });
    if (least > must) throw Error("minProperties beside optional properties is not supported");
    if (most != kNoLimit && (most < all || rest != false))
      throw Error("maxProperties beside optional properties is not supported");
    return Members(members, rest == false
                                ? std::nullopt
                                : std::optional(Kept(Member(OtherName(names), Visit(rest, depth + 1)))));
  }

  // Members in their order, then any number of `other`. `after`: what may follow once there was a member;
  // `first`: the members from here on, if there was none yet.
  Expr Members(const std::vector<Property>& members, const std::optional<Expr>& other) {
    const auto behind = [&](const Expr& member) { return Sequence({Text(","), Space(), member}); };
    Expr after = other ? Repeat(behind(*other), 0) : Sequence({});
    Expr first = other ? Optional(Sequence({Space(), *other, after})) : Sequence({});
    after = Kept(std::move(after));
    for (size_t i = members.size(); i-- > 0;) {
      Expr here = Sequence({Space(), members[i].member, after});
      first = Kept(members[i].required ? std::move(here) : Choice({std::move(here), std::move(first)}));
      Expr next = behind(members[i].member);
      if (!members[i].required) next = Optional(std::move(next));
      after = Kept(Sequence({std::move(next), std::move(after)}));
    }
    return Sequence({Text("{"), std::move(first), Space(), Text("}")});
  }

  Expr PatternObject(const Json& schema, bool alone, int depth) {
    const Json& patterns = schema["patternProperties"];
    const bool closed = schema.contains("additionalProperties") && schema["additionalProperties"] == false;
    if (!patterns.is_object() || patterns.size() != 1 || !alone || !closed)
      throw Error("patternProperties is supported alone, with one pattern and additionalProperties false");
    const int64_t least = Count(schema, "minProperties", 0);
    if (least > 1) throw Error("minProperties is not supported, except 0 and 1: names may repeat");
    const auto& [pattern, value] = *patterns.items().begin();
    const Expr key = JsonQuoted(ParseRegex(pattern, &JsonCharOf));
    const Expr member = Kept(Member(key, Visit(value, depth + 1)));
    return Sequence(
        {Text("{"), List(member, least, Count(schema, "maxProperties", kNoLimit)), Space(), Text("}")});
  }

  const Json& root_;
  const std::string& source_;
  Rules& rules_;
  std::map<const Json*, int32_t> references_;
  std::optional<int32_t> space_;
  std::optional<int32_t> string_;
  std::optional<int32_t> value_;
  std::optional<int32_t> object_;
};

}  // namespace

Expr AddJsonSchema(const Json& schema, const std::string& source, Rules& rules) {
  return Compiler(schema, source, rules).Root();
}

Expr AddJsonObject(Rules& rules) {
  static const Json kAny = true;
  static const std::string kSource = "JSON";
  return Compiler(kAny, kSource, rules).AnyObject();
}

}  // namespace coppice
