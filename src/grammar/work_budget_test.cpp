#include "grammar/work_budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>

#include "base/error.h"
#include "base/limits.h"
#include "grammar/gbnf.h"
#include "grammar/grammar_test_support.h"
#include "grammar/hostile_grammars.h"
#include "grammar/json_schema.h"
#include "grammar/json_text.h"
#include "grammar/nfa.h"
#include "grammar/regex_rules.h"

namespace coppice {

using namespace grammar;  // of expressions
namespace {

// What the budget counted until the grammar was compiled, or refused as too large.
uint64_t WorkOf(const std::function<Rules(WorkBudget&)>& make) {
  WorkBudget budget;
  try {
    Compile(make(budget), budget);
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.find("too large") != std::string::npos ||
                message.find("too deep") != std::string::npos ||
                message.find("too many repetitions") != std::string::npos ||
                message.find("no text fits") != std::string::npos)
        << message;
  }
  return budget.work();
}

Rules PatternRules(const std::string& pattern, bool json) {
  Rules rules;
  Expr expr = ParseRegex(
      pattern, json ? &JsonCharOf : [](const CharSet& set) { return Chars(set); });
  rules.root = rules.Add(std::move(expr));
  return rules;
}

size_t PartsOf(const Expr& expr) {
  size_t parts = 1;
  for (const Expr& part : expr.parts) parts += PartsOf(part);
  return parts;
}

TEST(WorkBudgetTest, HostileGrammarsStayWithinTheBudget) {
  for (const std::string& text : HostileGrammars()) {
    SCOPED_TRACE(text.substr(0, 80));
    EXPECT_LT(WorkOf([&](WorkBudget& budget) { return ParseGbnf(text, budget); }),
              limits::kMaxGrammarWork + 3'000'000);
  }
}

TEST(WorkBudgetTest, HostilePatternsStayWithinTheBudget) {
  for (const std::string& pattern : HostilePatterns()) {
    for (const bool json : {false, true}) {
      SCOPED_TRACE(pattern.substr(0, 80));
      EXPECT_LT(WorkOf([&](WorkBudget&) { return PatternRules(pattern, json); }),
                limits::kMaxGrammarWork + 3'000'000);
    }
  }
}

// Of the rounds of a repetition of nothing one is enough, however they are nested.
TEST(WorkBudgetTest, RepetitionsOfNothingTakeNoRounds) {
  for (const char* text :
       {R"(root ::= (""{100000}){100000} "a")", R"(root ::= ((""{0,100000}){0,100000}){0,100000} "a")",
        R"(root ::= (("" ""{100000}){5,} "a"){2})", R"(root ::= ((""|""){100000}){0,100000} "a")",
        R"(root ::= (((""*){9}|()){100000}){0,100000} "a")"}) {
    SCOPED_TRACE(text);
    EXPECT_LT(WorkOf([&](WorkBudget& budget) { return ParseGbnf(text, budget); }), 200u);
  }
  EXPECT_TRUE(Fits(Compiled(ParseGbnf(R"(root ::= (""{100000}){100000} "a")")), "a"));
}

// All rules share one budget: each of these is within every limit of one rule.
TEST(WorkBudgetTest, RulesShareTheBudget) {
  const std::string text =
      "root ::= e0\n" + Chain("e", 3000, "(" + Repeated("\"a\"|", 10) + "\"a\"){60} {}", "\"b\"");
  WorkBudget budget;
  try {
    Compile(ParseGbnf(text, budget), budget);
    FAIL() << "compiled";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("the grammar is too large: its rules, written out"), 0u)
        << error.what();
  }
}

TEST(WorkBudgetTest, NullableRulesAreFoundInOnePass) {
  const std::string text = "root ::= e0 \"a\"\n" + Chain("e", 16'000, "{} | \"x\" e0", "\"\"");
  const uint64_t work = WorkOf([&](WorkBudget& budget) { return ParseGbnf(text, budget); });
  EXPECT_LT(work, 1'000'000u);
  const auto automaton = Compiled(ParseGbnf("root ::= e0 \"a\"\n" + Chain("e", 30, "{} | \"x\" e0", "\"\"")));
  EXPECT_TRUE(Fits(automaton, "a"));
  EXPECT_TRUE(Fits(automaton, "xxxa"));
}

// 20 KB for each alternative, once.
TEST(WorkBudgetTest, AlternativesShareTheTextAroundThem) {
  const auto parts = [](int bars) { return PartsOf(ParseRegex(Repeated("|", bars), &JsonCharOf)); };
  EXPECT_LT(parts(2000) - parts(1000), 3000u);
  const auto parts_of = [](const std::string& p) { return PartsOf(ParseRegex(p, &JsonCharOf)); };
  EXPECT_LT(parts_of(Repeated("^a|", 1000)) + parts_of(Repeated("a$|", 1000)), 12'000u);
  EXPECT_THROW(ParseRegex(Repeated("|", 300'000), &JsonCharOf), Error);
}

TEST(WorkBudgetTest, AnchorsHoldForTheirAlternative) {
  const auto g = Compiled(ParseRegex("^ab|cd$|^ef$|gh", [](const CharSet& set) { return Chars(set); }));
  for (const char* fits : {"ab", "abx", "cd", "xcd", "ef", "gh", "xghx"}) EXPECT_TRUE(Fits(g, fits)) << fits;
  for (const char* not_fits : {"xab", "cdx", "xef", "efx", "g", ""})
    EXPECT_FALSE(Fits(g, not_fits)) << not_fits;
}

TEST(WorkBudgetTest, EdgesAreCounted) {
  const std::vector<uint8_t> inlined(1, 0);
  Rules rules;
  WorkBudget budget;
  const Expr twice = Choice(std::vector<Expr>(100'000, Chars({{'a', 'b'}})));
  EXPECT_THROW(BuildNfa(rules, Repeat(twice, 20, 20), inlined, budget), Error);
}

TEST(WorkBudgetTest, CancellationEndsIt) {
  std::atomic<bool> cancelled{true};
  WorkBudget budget(&cancelled);
  EXPECT_THROW(ParseGbnf("root ::= " + Repeated("\"a\" ", 10'000), budget), Cancelled);
  WorkBudget later(&cancelled);
  EXPECT_THROW(Compile(ParseGbnf("root ::= ((\"a\"?){1000}){100}"), later), Cancelled);
}

TEST(WorkBudgetTest, LargeCompilationsAreToldBefore) {
  int told = 0;
  WorkBudget small(nullptr, [&] { ++told; });
  Compile(ParseGbnf("root ::= [a-z]{1,100}", small), small);
  EXPECT_EQ(told, 0);
  WorkBudget large(nullptr, [&] { ++told; });
  EXPECT_THROW(Compile(ParseGbnf("root ::= [ab]* \"a\" [ab]{40}", large), large), Error);
  EXPECT_EQ(told, 1);
}

// An ambiguous grammar takes much for each byte: a token and an answer have limits.
TEST(WorkBudgetTest, AnswersHaveABudget) {
  const auto push = [](const std::string& text, int tokens, int bytes) -> std::string {
    GrammarMatcher matcher(Compiled(ParseGbnf(text)));
    try {
      for (int t = 0; t < tokens; ++t) {
        matcher.RenewBudget();
        for (int b = 0; b < bytes; ++b) matcher.Push('a');
      }
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string both = "root ::= x x | \"a\"\nx ::= root";
  EXPECT_EQ(push(both, 1, 100'000), "the grammar takes too long for one token");
  EXPECT_EQ(push("root ::= \"a\"*", 100, 1000), "");
  // A byte here takes less than a token may, but many for each token are too much for an answer.
  GrammarMatcher matcher(Compiled(ParseGbnf(both)));
  for (int b = 0; b < 100; ++b) {
    matcher.RenewBudget();
    matcher.Push('a');
  }
  std::string message;
  for (int t = 0; t < 100'000 && message.empty(); ++t) {
    try {
      matcher.RenewBudget();
      for (int i = 0; i < 50; ++i) {
        matcher.Push('a');
        matcher.Pop(1);
      }
    } catch (const Error& error) {
      message = error.what();
    }
  }
  EXPECT_EQ(message, "the grammar takes too long for this answer");
}

// Each value of an enum is checked against what stands beside it; all these checks have one budget.
TEST(WorkBudgetTest, ValuesBesideDeepKeywordsAreGivenUp) {
  nlohmann::ordered_json level = {{"type", "null"}};
  for (int i = 0; i < 5; ++i) {
    nlohmann::ordered_json kinds = nlohmann::ordered_json::array();
    for (int k = 0; k < 8; ++k) kinds.push_back(level);
    level = {{"anyOf", std::move(kinds)}};
  }
  nlohmann::ordered_json schema = {{"enum", nlohmann::ordered_json::array()},
                                   {"not", {{"anyOf", {level, level}}}}};
  for (int i = 0; i < 500; ++i) schema["enum"].push_back(i);
  Rules rules;
  EXPECT_THROW(AddJsonSchema(schema, rules), Error);
}

}  // namespace
}  // namespace coppice
