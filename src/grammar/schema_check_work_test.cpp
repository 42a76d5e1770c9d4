// Schemas and values of hostile sizes: each is checked, or refused, within a second of CPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <ctime>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/limits.h"
#include "grammar/json_schema.h"
#include "grammar/schema_check.h"
#include "grammar/schema_pattern.h"
#include "grammar/schema_values.h"

namespace coppice {
namespace {

using Json = nlohmann::ordered_json;

// As it takes without sanitizers on a busy machine; quadratic work took 3 s to minutes.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kMostSeconds = 12;
#else
constexpr double kMostSeconds = 1.5;
#endif

double SecondsOf(const std::function<void()>& work) {
  const std::clock_t start = std::clock();
  try {
    work();
  } catch (const Error&) {  // refused
  }
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

Json List(size_t count, const std::function<Json(size_t)>& item) {
  Json list = Json::array();
  for (size_t i = 0; i < count; ++i) list.push_back(item(i));
  return list;
}

Json Object(size_t count, const std::string& prefix, const std::function<Json(size_t)>& member) {
  Json object = Json::object();
  for (size_t i = 0; i < count; ++i) object[fmt::format("{}{}", prefix, i)] = member(i);
  return object;
}

Json Nested(size_t depth, const std::function<Json(Json)>& around) {
  Json value = true;
  for (size_t i = 0; i < depth; ++i) value = around(std::move(value));
  return value;
}

struct WorkCase {
  const char* name;
  Json schema;
  Json value;
};

std::vector<WorkCase> HostileCases() {
  const Json ones = List(50'000, [](size_t) { return Json(1); });
  const Json numbers = List(50'000, [](size_t i) { return Json(i); });
  const Json members = Object(1000, "member", [](size_t i) { return Json(i); });
  const Json objects = List(100, [&](size_t) { return members; });
  const std::string text(100'000, 'a');
  return {
      {"a long list of types", {{"items", {{"type", List(50'000, [](size_t) { return "string"; })}}}}, ones},
      {"a long enum", {{"items", {{"enum", numbers}}}}, numbers},
      {"an enum of objects",
       {{"enum", List(300, [&](size_t) { return members; })}},
       Object(1000, "members", [](size_t i) { return Json(i); })},
      {"equal objects",
       {{"enum", List(100,
                      [&](size_t i) {
                        Json other = members;
                        other["member999"] = i;
                        return other;
                      })}},
       members},
      {"unique objects", {{"uniqueItems", true}}, objects},
      {"a long value that fits none",
       {{"anyOf", List(20'000,
                       [](size_t i) {
                         return Json{{"const", i}};
                       })}},
       text},
      {"a long list that fits none",
       {{"anyOf", List(20'000,
                       [](size_t i) {
                         return Json{{"const", i}};
                       })}},
       ones},
      {"all alternatives hold", {{"anyOf", List(20'000, [](size_t) { return Json(true); })}}, ones},
      {"all must hold", {{"allOf", List(20'000, [](size_t) { return Json(true); })}}, ones},
      {"unknown keywords", {{"items", Object(1000, "x", [](size_t) { return Json(1); })}}, ones},
      {"long paths", {{"additionalProperties", {{"items", true}}}}, {{std::string(50'000, 'k'), ones}}},
      {"names needed by many",
       {{"items", {{"required", List(1000, [](size_t i) { return fmt::format("member{}", i); })}}}},
       objects},
      {"dependencies",
       {{"items",
         {{"dependentRequired", Object(1000, "member",
                                       [](size_t) {
                                         return List(
                                             100, [](size_t i) { return fmt::format("member{}", 900 + i); });
                                       })}}}},
       objects},
      {"references by name",
       {{"$defs", Object(1000, "a",
                         [](size_t i) {
                           return Json{{"$id", fmt::format("id{}", i)}};
                         })},
        {"items", {{"$ref", "id999"}}}},
       ones},
      {"pointers",
       {{"$defs", Object(1000, "a", [](size_t) { return Json(true); })},
        {"items", {{"$ref", "#/$defs/a999"}}}},
       ones},
      {"long names of schemas",
       {{"$id", std::string(100'000, 'a') + "/"},
        {"allOf", List(1000,
                       [](size_t) {
                         return Json{{"$id", "b"}};
                       })}},
       1},
      {"alternatives within alternatives",
       Nested(
           60,
           [](Json in) {
             return Json{{"anyOf", Json::array({in, in.is_boolean() ? Json(false) : Json{{"$ref", "#"}}})}};
           }),
       1},
      {"a cycle through alternatives",
       {{"anyOf", Json::array({{{"not", {{"$ref", "#"}}}}, {{"$ref", "#"}}})}},
       1},
      {"what is not evaluated",
       {{"allOf", List(200,
                       [](size_t) {
                         return Json{{"unevaluatedItems", true}};
                       })}},
       ones},
      {"what is contained",
       {{"contains", {{"contains", {{"const", 1}}}}}},
       List(300, [&](size_t) { return List(300, [](size_t) { return Json(0); }); })},
      {"patterns of names",
       {{"patternProperties", Object(200, "(a|a)*b", [](size_t) { return Json(true); })}},
       Object(1000, "aaaaaaaaaaaaaaaaaaaaaaaaaaa", [](size_t) { return Json(1); })},
      {"a pattern at each place",
       {{"pattern", "a*a*[bc]"}},
       [] {
         std::string blocks;
         for (int i = 0; i < 160; ++i) blocks += std::string(600, 'a') + "x";
         return blocks;
       }()},
      {"a pattern of a long text", {{"pattern", "(a+)+[bc]"}}, text},
      {"a pattern that goes back", {{"pattern", "^(.*)x(.*)\\1\\2$"}}, text},
      {"a pattern that looks ahead", {{"pattern", "(?=(.*b))a"}}, text},
      {"a long pattern",
       {{"pattern",
         [] {
           std::string all;
           for (int i = 0; i < 3000; ++i) all += "(a|b)";
           return all;
         }()}},
       text},
  };
}

TEST(SchemaCheckWork, ValuesOfHostileSizesAreCheckedSoon) {
  for (const WorkCase& one : HostileCases())
    EXPECT_LT(SecondsOf([&] { CheckSchema(one.schema, one.value); }), kMostSeconds) << one.name;
}

TEST(SchemaCheckWork, HostileSchemasAreCompiledSoon) {
  std::vector<std::pair<const char*, Json>> schemas;
  for (WorkCase& one : HostileCases()) schemas.emplace_back(one.name, std::move(one.schema));
  const Json empties = List(20'000, [](size_t) { return Json::object(); });
  const Json names = List(1000, [](size_t i) { return fmt::format("name{}", i); });
  const auto alternatives = [](size_t count, const std::function<Json(size_t)>& one) {
    return Json{{"anyOf", List(count, one)}};
  };
  schemas.emplace_back("two lists of alternatives",
                       Json{{"allOf", Json::array({{{"anyOf", empties}}, {{"anyOf", empties}}})}});
  schemas.emplace_back(
      "enums that are disjoint",
      Json{{"oneOf", List(60, [](size_t i) {
              return Json{{"enum", List(1000, [i](size_t j) { return Json(1000 * i + j); })}};
            })}});
  schemas.emplace_back(
      "an enum against another",
      Json{{"enum", List(5000, [](size_t i) { return Json(i); })},
           {"not", {{"enum", List(5000, [](size_t i) { return Json(-1.0 * static_cast<double>(i)); })}}}});
  schemas.emplace_back("required by many", Json{{"allOf", List(200, [&](size_t i) {
                                                   Json all = names;
                                                   all.push_back(i);
                                                   return Json{{"required", all}};
                                                 })}});
  schemas.emplace_back("unknown keywords", alternatives(13'000, [](size_t) { return Json{{"a", 1}}; }));
  schemas.emplace_back("any list or object", alternatives(13'000, [](size_t) {
                         return Json{{"type", {"array", "object", "number"}}};
                       }));
  schemas.emplace_back("numbers", alternatives(10'000, [](size_t i) { return Json{{"minimum", i}}; }));
  schemas.emplace_back("dates", alternatives(10'000, [](size_t) { return Json{{"format", "date-time"}}; }));
  schemas.emplace_back("patterns", alternatives(5000, [](size_t) {
                         return Json{{"pattern", "^[a-z]{3}\\W+$"}};
                       }));
  schemas.emplace_back("objects", alternatives(5000, [](size_t) {
                         return Json{{"properties", {{"a", {{"items", true}}}}}};
                       }));
  for (const auto& [name, schema] : schemas) {
    grammar::Rules rules;
    const auto compile = [&rules](const Json& one) {
      WorkBudget budget;
      rules.root = rules.Add(AddJsonSchema(one, rules, budget));
    };
    EXPECT_LT(SecondsOf([&, &one = schema] { compile(one); }), kMostSeconds) << name;
    size_t exprs = 0;
    for (const grammar::Expr& expr : rules.rules) exprs += grammar::CountExprs(expr);
    EXPECT_LT(exprs * sizeof(grammar::Expr), size_t{64} << 20) << name;
  }
}

TEST(SchemaCheckWork, AClientThatLeavesEndsIt) {
  const std::atomic<bool> left{true};
  WorkBudget budget(&left);
  grammar::Rules rules;
  const Json schema{{"anyOf", List(20'000, [](size_t i) { return Json{{"minimum", i}}; })}};
  EXPECT_THROW(AddJsonSchema(schema, rules, budget), Cancelled);
  std::vector<std::string> dropped;
  WorkBudget other(&left);
  EXPECT_THROW(AddArguments(schema, rules, dropped, other), Cancelled);
}

TEST(SchemaCheckWork, PatternsFindWhatIsFarInALongText) {
  SchemaPatterns patterns;
  const std::string text = std::string(100'000, 'a') + "xyz" + std::string(100'000, 'b');
  EXPECT_TRUE(patterns.Finds("x.z", text));
  EXPECT_TRUE(patterns.Finds("^a+x", text));
  EXPECT_TRUE(patterns.Finds("[xy]+zb*$", text));
  EXPECT_FALSE(patterns.Finds("^b", text));
  EXPECT_FALSE(patterns.Finds("^.{1,1000}$", text));
  EXPECT_TRUE(patterns.Finds("(?<=y)z", text));
}

TEST(SchemaCheckWork, MessagesShowTheBeginningOfAValue) {
  EXPECT_EQ(fmt::format("{}", ShownValue{Json{{"a", {1, "x", nullptr}}, {"b", Json::object()}}}),
            R"({"a":[1,"x",null],"b":{}})");
  EXPECT_EQ(fmt::format("{}", ShownValue{Json(std::string(1000, 'a'))}), "\"" + std::string(79, 'a'));
}

}  // namespace
}  // namespace coppice
