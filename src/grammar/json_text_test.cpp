// White space between the parts of a JSON text: what models write fits, and a model cannot fill an answer
// with blanks.
#include "grammar/json_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "grammar/grammar_test_support.h"
#include "grammar/json_schema.h"

namespace coppice {
namespace {

std::shared_ptr<const Automaton> AnyObject() {
  grammar::Rules rules;
  grammar::Expr root = AddJsonObject(rules);
  rules.root = rules.Add(std::move(root));
  return Compiled(rules);
}

TEST(JsonSpaceTest, IndentedTextFits) {
  const auto object = AnyObject();
  nlohmann::ordered_json nested = {{"a", 1}, {"b", {true, nullptr}}, {"c", nlohmann::ordered_json::object()}};
  for (int depth = 1; depth <= 9; ++depth) nested = {{"list", {nested, "x"}}, {"more", depth}};
  EXPECT_TRUE(Fits(object, nested.dump(1)));
  EXPECT_TRUE(Fits(object, nested.dump(1, '\t')));
  for (int levels = 0; levels < 4; ++levels) nested = nested["list"][0];
  EXPECT_TRUE(Fits(object, nested.dump(2)));
  for (int levels = 0; levels < 3; ++levels) nested = nested["list"][0];
  EXPECT_TRUE(Fits(object, nested.dump(4)));
  EXPECT_TRUE(Fits(object, "{\n\n  \"a\": 1\n\n}"));
}

// At each place of a text, as many blanks as the grammar takes.
TEST(JsonSpaceTest, BlanksAreFew) {
  const std::string text = R"({"a":[1,"b",{"c":null}],"d":-2.5e1})";
  for (const std::string blanks : {" ", "\t", "\n", "\n ", "\n\t", "\r\n", " \n"}) {
    GrammarMatcher matcher(AnyObject());
    bool in_string = false;
    for (const char c : text) {
      ASSERT_TRUE(matcher.Push(static_cast<uint8_t>(c)));
      if (c == '"') in_string = !in_string;
      int taken = 0;
      for (GrammarMatcher next = matcher; !in_string && taken < 100; ++taken) {
        next.RenewBudget();
        if (!next.Push(static_cast<uint8_t>(blanks[std::min(static_cast<size_t>(taken), blanks.size() - 1)])))
          break;
      }
      EXPECT_LE(taken, 26) << "behind " << c;
    }
    EXPECT_TRUE(matcher.can_end());
    EXPECT_FALSE(matcher.Push(' '));
  }
}

}  // namespace
}  // namespace coppice
