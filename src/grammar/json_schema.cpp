#include "grammar/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/limits.h"
#include "grammar/json_rules.h"
#include "grammar/json_text.h"
#include "grammar/regex_rules.h"
#include "grammar/schema_checker.h"
#include "grammar/schema_keywords.h"
#include "grammar/schema_merge.h"
#include "grammar/schema_notes.h"
#include "grammar/schema_refs.h"
#include "grammar/schema_simplify.h"
#include "grammar/schema_strings.h"
#include "grammar/schema_values.h"

namespace coppice {

using namespace grammar;  // of expressions

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxWork = 1'000'000;  // values looked at and copied
constexpr size_t kMaxRequired = 1024;   // names
constexpr int kMaxNesting = 128;        // with the schemas that merging makes
constexpr size_t kMaxNote = 80;         // bytes
constexpr size_t kStepsOfExpr = 16;
constexpr size_t kExprsOfMember = 16;

class Compiler {
 public:
  Compiler(const Json& root, Rules& rules, SchemaNotes& notes, WorkBudget& budget)
      : root_(root),
        rules_(rules),
        notes_(notes),
        budget_(budget),
        refs_(root),
        checker_(root, SchemaDraft::k2020, &budget),
        json_(rules) {}

  Expr Root() { return Visit(root_, 0); }

  // Arguments of a function are an object, whether or not their schema says so. One argument may be anything.
  Expr RootArguments(bool is_one) {
    Json root = root_;
    if (!root.is_object()) return Visit(root, 0);
    const Json type = root.value("type", Json("object"));
    if (!is_one && type != "object" && std::ranges::find(type, Json("object")) == type.end())
      notes_.Drop("type", "type of arguments is not object");
    if (!is_one) root["type"] = "object";
    std::string fault = "a keyword has a value of another type than its own";
    try {
      return VisitChecked(root, 0);
    } catch (const Json::exception&) {
    } catch (const Error& error) {
      fault = error.what();
    }
    if (rules_.rules.size() >= limits::kMaxGrammarRules) throw Error("{}", fault);
    notes_.Drop(fault.substr(0, kMaxNote), fault);
    return is_one ? json_.AnyValue() : json_.AnyObject();
  }

 private:
  void Spend(size_t values = 1) {
    budget_.Spend(values);
    rules_.work += values;
    if (rules_.work > kMaxWork) throw Error("the schema is too large once its parts are merged");
  }

  // Of an expression that was made, in steps of the budget: it takes as much memory as some tens of nodes.
  Expr Made(Expr expr) {
    budget_.Spend(kStepsOfExpr * CountExprs(expr));
    return expr;
  }

  // What a value of the schema may be. What is wrong with a part of a schema is no reason to lose the whole.
  Expr Visit(const Json& schema, int depth) {
    std::string fault = "a keyword has a value of another type than its own";
    try {
      return VisitChecked(schema, depth);
    } catch (const Json::exception&) {
    } catch (const Error& error) {
      fault = error.what();
    }
    notes_.Drop(fault.substr(0, kMaxNote), fault);
    return json_.AnyValue();
  }

  Expr VisitChecked(const Json& given, int depth) {
    Spend();
    if (depth > kMaxNesting) throw Error("schemas in schemas are too deep");
    const Json* simple = &given;
    Json simplified;
    if (given.is_object() && CanSimplify(given)) {
      Spend(CountValues(given));
      simplified = SimplifySchema(WithNames(given, depth));
      simple = &simplified;
    }
    const Json& schema = *simple;
    if (schema.is_boolean()) return schema.get<bool>() ? json_.AnyValue() : Choice({});
    if (!schema.is_object()) throw Error("a schema is neither an object nor true or false");
    for (const char* keyword : {"allOf", "anyOf", "oneOf", "$ref"}) {
      if (schema.contains(keyword)) return VisitCombined(schema, keyword, depth);
    }
    if (schema.contains("const") || schema.contains("enum")) return Listed(schema);
    DropKeywords(schema, notes_);
    if (!schema.contains("type") && !HasTypedKeywords(schema)) return json_.AnyValue();
    std::vector<Expr> choices;
    for (const std::string& type : SchemaTypes(schema, notes_))
      choices.push_back(OfType(schema, type, depth));
    return choices.size() == 1 ? std::move(choices.front()) : Choice(std::move(choices));
  }

  // The schema with what its propertyNames refers to in place: pydantic's dictionaries of an enum.
  Json WithNames(const Json& given, int depth) {
    Json schema = given;
    const auto names = schema.find("propertyNames");
    if (names == schema.end() || !names->is_object() || !names->contains("$ref")) return schema;
    try {
      *names = Resolved(Json(*names), depth);
    } catch (const Error&) {
      // The keyword stays, and is one that a grammar does not keep.
    }
    return schema;
  }

  Json Merged(const Json& a, const Json& b) {
    Spend(MergingSteps(a, b));
    return MergeSchemas(a, b, notes_);
  }

  Expr Listed(const Json& schema) {
    const size_t values = schema.contains("enum") ? schema["enum"].size() : 1;
    Spend(values * (1 + schema.size()));
    return Made(SchemaValues(schema, checker_));
  }

  static bool IsAlone(const Json& schema, std::string_view keyword) {
    return std::ranges::all_of(
        schema.items(), [&](const auto& item) { return item.key() == keyword || IsAnnotation(item.key()); });
  }

  Expr VisitCombined(const Json& schema, const std::string& keyword, int depth) {
    const Json& value = schema[keyword];
    const bool alone = IsAlone(schema, keyword);
    if (keyword == "$ref")
      return alone ? Reference(schema, depth) : Visit(WithoutReference(schema, depth), depth + 1);
    if (!value.is_array() || value.empty()) throw Error("{} is not a list of schemas", keyword);
    Spend(CountValues(schema));
    Json rest = schema;
    rest.erase(keyword);
    if (keyword == "allOf") {
      Json merged = WithoutReference(rest, depth);
      for (const Json& part : value) merged = Merged(merged, Resolved(part, depth));
      return Visit(merged, depth + 1);
    }
    if (keyword == "oneOf") CheckDisjoint(value, depth);
    std::vector<Expr> choices;
    for (const Json& part : value)
      choices.push_back(
          Visit(alone ? part : Merged(WithoutReference(rest, depth), Resolved(part, depth)), depth + 1));
    return Choice(std::move(choices));
  }

  void CheckDisjoint(const Json& alternatives, int depth) {
    std::vector<Json> resolved;
    for (const Json& alternative : alternatives) resolved.push_back(Resolved(alternative, depth));
    for (size_t i = 0; i < resolved.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        Spend();
        if (!AreDisjoint(resolved[i], resolved[j], [this](size_t steps) { budget_.Spend(steps); })) {
          notes_.Drop("oneOf",
                      fmt::format("alternatives {} and {} of oneOf may hold at once, which a grammar "
                                  "cannot exclude: send anyOf",
                                  j, i));
        }
      }
    }
  }

  // The schema without $ref: what that refers to, merged with what stands beside it. Members and items that
  // only its own parts look at would be others' too, once merged.
  Json Resolved(const Json& given, int depth) {
    Spend(CountValues(given));
    if (!given.is_object()) return given;
    Json schema = CanSimplify(given) ? SimplifySchema(given) : given;
    for (const char* keyword : {"unevaluatedProperties", "unevaluatedItems"}) {
      if (!schema.is_object() || !schema.contains(keyword)) continue;
      notes_.Drop(keyword, fmt::format("{} is not supported beside what its own schema combines", keyword));
      schema.erase(keyword);
    }
    return WithoutReference(schema, depth);
  }

  Json WithoutReference(const Json& schema, int depth) {
    if (!schema.is_object() || !schema.contains("$ref")) return schema;
    if (depth > kMaxNesting) throw Error("$ref refers to itself");
    const Json target = Resolved(Target(schema), depth + 1);
    if (IsAlone(schema, "$ref")) return target;
    Json rest = schema;
    rest.erase("$ref");
    return Merged(rest, target);
  }

  // Copies of schemas in a schema with an $id of its own no longer tell where they stood.
  const Json& Target(const Json& schema) const {
    if (refs_.has_inner() && !refs_.Knows(schema))
      throw Error("$ref beside schemas with an $id is not supported");
    return refs_.Target(schema, schema["$ref"]);
  }

  // References may be recursive, so that each is a rule.
  Expr Reference(const Json& schema, int depth) {
    const Json& target = Target(schema);
    const auto [found, is_new] = references_.emplace(&target, 0);
    if (!is_new) return Rule(found->second);
    const int32_t rule = json_.NewRule({});
    found->second = rule;
    Expr made = Visit(target, depth + 1);
    rules_.rules[static_cast<size_t>(rule)] = std::move(made);
    return Rule(rule);
  }

  Expr OfType(const Json& schema, const std::string& type, int depth) {
    const bool any = !HasKeywordsOf(type == "integer" ? "number" : type, schema);
    if (type == "object") return any ? json_.AnyObject() : Object(schema, depth);
    if (type == "array") return any ? json_.AnyArray() : Made(Array(schema, depth));
    if (type == "string")
      return any ? json_.AnyString() : Made(SchemaString(schema, json_.AnyChar(), notes_));
    if (type == "integer") return Made(SchemaNumber(schema, true, notes_));
    if (type == "number") return any ? json_.AnyNumber() : Made(SchemaNumber(schema, false, notes_));
    if (type == "boolean") return Choice({Text("true"), Text("false")});
    return Text("null");
  }

  Expr Array(const Json& schema, int depth) {
    const bool old_form = schema.contains("items") && schema["items"].is_array();
    const Json first = old_form ? schema["items"] : schema.value("prefixItems", Json::array());
    const Json rest =
        old_form ? schema.value("additionalItems", Json(true)) : schema.value("items", Json(true));
    if (!first.is_array()) throw Error("prefixItems is not a list of schemas");
    const int64_t least = SchemaCount(schema, "minItems", 0, notes_);
    int64_t most = SchemaCount(schema, "maxItems", kNoLimit, notes_);
    const auto fixed = static_cast<int64_t>(first.size());
    if (rest == false) most = most == kNoLimit ? fixed : std::min(most, fixed);
    if (most != kNoLimit && most < least) return Choice({});
    if (fixed == 0) {
      Expr item = rest == false ? Choice({}) : json_.Kept(Visit(rest, depth + 1));
      return json_.ArrayOf(item, least, most);
    }
    return Tuple(first, rest, least, most, depth);
  }

  // The list may end behind each item from `least` on: item 0 (, item 1 (, item 2 ...)).
  Expr Tuple(const Json& first, const Json& rest, int64_t least, int64_t most, int depth) {
    const auto fixed = static_cast<int64_t>(first.size());
    Expr tail = Sequence({});
    if (rest != false && (most == kNoLimit || most > fixed)) {
      tail = Repeat(Sequence({Text(","), json_.Space(), json_.Kept(Visit(rest, depth + 1))}),
                    std::max<int64_t>(least - fixed, 0), most == kNoLimit ? kNoLimit : most - fixed);
    }
    for (int64_t i = most == kNoLimit ? fixed : std::min(fixed, most); i-- > 0;) {
      Expr item = Visit(first[static_cast<size_t>(i)], depth + 1);
      tail = Sequence({json_.Space(), std::move(item), std::move(tail)});
      if (i > 0) tail = Sequence({Text(","), std::move(tail)});
      if (i >= least) tail = Optional(std::move(tail));
      budget_.Spend(kStepsOfExpr * kExprsOfMember);
      tail = Rule(json_.NewRule(std::move(tail)));
    }
    return Sequence({Text("["), std::move(tail), json_.Space(), Text("]")});
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
    const int64_t least = SchemaCount(schema, "minProperties", 0, notes_);
    const int64_t most = SchemaCount(schema, "maxProperties", kNoLimit, notes_);
    if (most != kNoLimit && most < least) return Choice({});
    const bool has_patterns = schema.contains("patternProperties");
    if (has_patterns && properties.empty() && required.empty()) return PatternObject(schema, depth);
    if (has_patterns) {
      Spend((properties.size() + required.size()) * CountValues(schema["patternProperties"]));
      return Object(PropertiesOfPatterns(schema), depth);
    }
    std::vector<Property> members;
    std::vector<std::string> names;
    const auto add = [&](const std::string& name, const Json& value, bool is_required) {
      budget_.Spend(kStepsOfExpr * kExprsOfMember);
      names.push_back(name);
      Expr member = json_.Member(Text(Json(name).dump()), Visit(value, depth + 1));
      members.push_back({json_.Kept(std::move(member)), is_required});
    };
    for (const auto& [name, value] : properties.items())
      add(name, value, std::ranges::find(required, Json(name)) != required.end());
    for (const Json& name : required) {
      if (!name.is_string()) throw Error("required holds something that is no name");
      if (!properties.contains(name.get_ref<const std::string&>()))
        add(name, schema.value("additionalProperties", Json(true)), true);
    }
    if (members.empty()) {
      if (rest == false) return least > 0 ? Choice({}) : Sequence({Text("{"), json_.Space(), Text("}")});
      if (least > 1)
        notes_.Drop("minProperties", "minProperties is not supported, except 0 and 1: names may repeat");
      return json_.ObjectOf(json_.Kept(Visit(rest, depth + 1)), least, most);
    }
    const auto all = static_cast<int64_t>(members.size());
    const auto must = std::ranges::count_if(members, [](const Property& p) { return p.required; });
    if (least > std::max<int64_t>(must, 1))
      notes_.Drop("minProperties", "minProperties above 1 beside optional properties is not supported");
    if (most != kNoLimit && (most < all || rest != false))
      notes_.Drop("maxProperties", "maxProperties beside optional properties is not supported");
    std::optional<Expr> other;
    if (rest != false) other = json_.Kept(json_.Member(OtherName(names), Visit(rest, depth + 1)));
    return Members(members, other, least > 0);
  }

  // Members in their order, then any number of `other`; at least one of all these if `not_empty`. `after`:
  // what may follow once there was a member; `first`: the members from here on, if there was none yet.
  Expr Members(const std::vector<Property>& members, const std::optional<Expr>& other, bool not_empty) {
    const auto behind = [&](const Expr& member) { return Sequence({Text(","), json_.Space(), member}); };
    Expr after = other ? Repeat(behind(*other), 0) : Sequence({});
    Expr first = other ? Sequence({json_.Space(), *other, after}) : Choice({});
    if (!not_empty) first = Optional(std::move(first));
    after = json_.Kept(std::move(after));
    for (size_t i = members.size(); i-- > 0;) {
      Expr here = Sequence({json_.Space(), members[i].member, after});
      first = json_.Kept(members[i].required ? std::move(here) : Choice({std::move(here), std::move(first)}));
      Expr next = behind(members[i].member);
      if (!members[i].required) next = Optional(std::move(next));
      after = json_.Kept(Sequence({std::move(next), std::move(after)}));
    }
    return Sequence({Text("{"), std::move(first), json_.Space(), Text("}")});
  }

  // Members whose names match the patterns.
  Expr PatternObject(const Json& schema, int depth) {
    const Json& patterns = schema["patternProperties"];
    if (!patterns.is_object()) throw Error("patternProperties is not an object");
    const Json& first = *patterns.begin();
    const bool alike = std::ranges::all_of(patterns, [&](const Json& value) { return value == first; });
    if (!alike) notes_.Drop("patternProperties", "patternProperties with several patterns is not supported");
    const int64_t least = SchemaCount(schema, "minProperties", 0, notes_);
    const int64_t most = SchemaCount(schema, "maxProperties", kNoLimit, notes_);
    if (most != kNoLimit && most < least) return Choice({});
    if (least > 1)
      notes_.Drop("minProperties", "minProperties is not supported, except 0 and 1: names may repeat");
    std::vector<Expr> members;
    for (const auto& [pattern, value] : patterns.items()) {
      const Expr key = Made(JsonQuoted(ParseRegex(pattern, &JsonCharOf)));
      members.push_back(json_.Member(key, Visit(value, depth + 1)));
    }
    return Sequence({Text("{"), json_.List(json_.Kept(Choice(std::move(members))), least, most),
                     json_.Space(), Text("}")});
  }

  const Json& root_;
  Rules& rules_;
  SchemaNotes& notes_;
  WorkBudget& budget_;
  const SchemaRefs refs_;
  SchemaChecker checker_;
  JsonRules json_;
  std::map<const Json*, int32_t> references_;
};

}  // namespace

Expr AddJsonSchema(const Json& schema, Rules& rules, WorkBudget& budget) {
  SchemaNotes notes(nullptr);
  return Compiler(schema, rules, notes, budget).Root();
}

Expr AddArguments(const Json& schema, Rules& rules, std::vector<std::string>& not_enforced,
                  WorkBudget& budget, int64_t most_repeats) {
  SchemaNotes notes(&not_enforced, most_repeats);
  return Compiler(schema, rules, notes, budget).RootArguments(false);
}

Expr AddArgument(const Json& schema, Rules& rules, std::vector<std::string>& not_enforced, WorkBudget& budget,
                 int64_t most_repeats) {
  SchemaNotes notes(&not_enforced, most_repeats);
  return Compiler(schema, rules, notes, budget).RootArguments(true);
}

Expr AddJsonObject(Rules& rules) { return JsonRules(rules).AnyObject(); }

}  // namespace coppice
