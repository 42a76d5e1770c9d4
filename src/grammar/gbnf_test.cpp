#include "grammar/gbnf.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "base/error.h"
#include "base/limits.h"
#include "grammar/grammar_test_support.h"

namespace coppice {
namespace {

std::shared_ptr<const Automaton> Gbnf(std::string_view text) { return Compiled(ParseGbnf(text)); }

TEST(GbnfTest, TextsClassesAndGroups) {
  const auto g = Gbnf(R"(root ::= "ab" [c-e]+ ("x" | "yz")? [^0-9\n] .)");
  EXPECT_TRUE(Fits(g, "abc!?"));
  EXPECT_TRUE(Fits(g, "abcdeyz!1"));
  EXPECT_TRUE(Fits(g, "abcxä€"));
  EXPECT_FALSE(Fits(g, "ab!?"));
  EXPECT_FALSE(Fits(g, "abc1?"));
  EXPECT_FALSE(Fits(g, "abc!"));
}

TEST(GbnfTest, EveryCharacterHasItsUtf8AndNoOther) {
  const auto g = Gbnf(R"(root ::= [^a])");
  for (const char* one : {"b", "\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                          "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(Fits(g, one)) << testing::PrintToString(std::string(one));
  }
  for (const char* none : {"a", "\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                           "\xF4\x90\x80\x80", "\xC2", "bb"}) {
    EXPECT_FALSE(Fits(g, none)) << testing::PrintToString(std::string(none));
  }
}

TEST(GbnfTest, Repetitions) {
  const auto g = Gbnf("root ::= \"a\"{2} \"b\"{1,3} \"c\"{2,} \"d\"*");
  EXPECT_TRUE(Fits(g, "aabcc"));
  EXPECT_TRUE(Fits(g, "aabbbccccdd"));
  EXPECT_FALSE(Fits(g, "abcc"));
  EXPECT_FALSE(Fits(g, "aabbbbcc"));
  EXPECT_FALSE(Fits(g, "aabc"));
  const auto many = Gbnf("root ::= word{500}\nword ::= [a-z] [0-9]?");
  EXPECT_TRUE(Fits(many, std::string(500, 'x')));
  EXPECT_FALSE(Fits(many, std::string(499, 'x')));
  EXPECT_FALSE(Fits(many, std::string(501, 'x')));
}

TEST(GbnfTest, RecursionOnBothSidesAndAmbiguity) {
  const auto left = Gbnf("root ::= root \"+\" n | n\nn ::= [0-9]+ | \"(\" root \")\"");
  EXPECT_TRUE(Fits(left, "1+22+(3+4)+((5))"));
  EXPECT_FALSE(Fits(left, "1++2"));
  EXPECT_FALSE(Fits(left, "(1+2"));
  const auto right = Gbnf("root ::= \"a\" root | \"\"");
  EXPECT_TRUE(Fits(right, std::string(300, 'a')));
  const auto both = Gbnf("root ::= root root | \"a\" | \"\"");
  EXPECT_TRUE(Fits(both, "aaaa"));
  const auto palindromes = Gbnf("root ::= \"a\" root \"a\" | \"b\" root \"b\" | \"a\"? | \"b\"");
  EXPECT_TRUE(Fits(palindromes, "abababa"));
  EXPECT_FALSE(Fits(palindromes, "aabb"));
  const auto hidden = Gbnf("root ::= nothing root \"x\" | \"y\"\nnothing ::= \"\" | \" \"");
  EXPECT_TRUE(Fits(hidden, "yxx"));
  EXPECT_TRUE(Fits(hidden, "  yxx"));
}

// llama.cpp's grammars/json.gbnf has this shape: groups over lines, comments, rules used before they are
// defined.
TEST(GbnfTest, Layout) {
  const auto g = Gbnf(R"(
# a value
root   ::= object
value  ::= object | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws
number ::= "-"? [0-9]+ ws
  | "NaN"
ws ::= | " " | "\n" [ \t]{0,20}
)");
  EXPECT_TRUE(Fits(g, R"({"a": 1, "b": {"c": "\u00e4\n"}})"));
  EXPECT_TRUE(Fits(g, "{\n  \"a\": NaN}"));
  EXPECT_FALSE(Fits(g, R"({"a" 1})"));
}

TEST(GbnfTest, SaysWhatIsWrongAndWhere) {
  const auto message = [](std::string_view text) -> std::string {
    try {
      Compile(ParseGbnf(text));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message("root ::= a"), "no rule defines 'a'");
  EXPECT_EQ(message("a ::= \"a\""), "it has no rule 'root'");
  EXPECT_EQ(message("root ::= \"a\"\nroot ::= \"b\""), "line 2: the rule is defined a second time");
  EXPECT_EQ(message("root = \"a\""), "line 1: expected ::= behind the rule's name");
  EXPECT_EQ(message("root ::= (\"a\""), "line 1: expected )");
  EXPECT_EQ(message("root ::= \"a"), "line 1: a text or a class does not end");
  EXPECT_EQ(message("root ::= [a-\n]"), "line 1: a text or a class does not end on its line");
  EXPECT_EQ(message("root ::= \"\\q\""), "line 1: an unknown escape");
  EXPECT_EQ(message("root ::= \"a\"{3,2}"), "line 1: a repetition's end is below its beginning");
  EXPECT_EQ(message("root ::= \"a\")"), "line 1: expected the end of the rule");
  EXPECT_EQ(message("root ::= <think>"), "line 1: tokens (<...>) are not supported: write their text");
  EXPECT_EQ(message("root ::= root \"a\""), "no text fits the grammar");
  EXPECT_EQ(message("\xFF"), "it is not UTF-8");
}

TEST(GbnfTest, BranchesWithoutEndAreLeftOut) {
  const auto g = Gbnf("root ::= \"a\" loop | \"ab\"\nloop ::= \"b\" loop");
  GrammarMatcher matcher(g);
  EXPECT_TRUE(matcher.Push('a'));
  EXPECT_TRUE(matcher.Push('b'));
  EXPECT_TRUE(matcher.must_end());
}

// Each of these would take exponential time or memory if nothing bounded it.
TEST(GbnfTest, HostileGrammarsEndSoon) {
  std::string doubling = "root ::= a0\n";
  for (int i = 0; i < 60; ++i) doubling += fmt::format("a{} ::= a{} a{}\n", i, i + 1, i + 1);
  doubling += "a60 ::= \"x\"\n";
  std::string nested(100'000, '(');
  std::string repeats = "root ::= \"a\"";
  for (int i = 0; i < 40; ++i) repeats += "{1000}";
  const std::string cases[] = {
      doubling,
      "root ::= " + nested,
      repeats,
      "root ::= [ab]* \"a\" [ab]{40}",
      "root ::= " + std::string(1 << 19, '.'),
      std::string(2 << 20, 'a'),
      "root ::= (\"a\"* )* ((\"a\"?){100}){100}",
  };
  for (const std::string& text : cases) {
    const auto start = std::chrono::steady_clock::now();
    try {
      const auto g = Gbnf(text);
      GrammarMatcher matcher(g);
      for (int i = 0; i < 50; ++i) {
        if (!matcher.Push('a') && !matcher.Push('x')) break;
      }
    } catch (const Error&) {
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20)) << text.substr(0, 80);
  }
}

TEST(GbnfTest, TooMuchAmbiguityIsRefused) {
  const auto g = Gbnf("root ::= x x x | \"a\" | \"\"\nx ::= root");
  GrammarMatcher matcher(g);
  const auto push = [&] {
    for (int i = 0; i < 100'000; ++i) matcher.Push('a');
  };
  EXPECT_THROW(push(), Error);
}

}  // namespace
}  // namespace coppice
