#include "grammar/recursion.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "grammar/gbnf.h"
#include "grammar/grammar_test_support.h"

namespace coppice {
namespace {

// Whether the text fits, by trying all ways: each rule and expression gives the ends that it may reach.
class Oracle {
 public:
  Oracle(const grammar::Rules& rules, const std::string& text) : rules_(rules), text_(text) {}
  bool Fits() {
    // Ends of each rule from each place, until nothing is added.
    ends_.assign(rules_.rules.size() * (text_.size() + 1), 0);
    for (bool grew = true; grew;) {
      grew = false;
      for (size_t rule = 0; rule < rules_.rules.size(); ++rule) {
        for (size_t at = 0; at <= text_.size(); ++at) {
          uint64_t& known = ends_[rule * (text_.size() + 1) + at];
          const uint64_t now = known | Ends(rules_.rules[rule], uint64_t{1} << at);
          grew = grew || now != known;
          known = now;
        }
      }
    }
    return ((ends_[static_cast<size_t>(rules_.root) * (text_.size() + 1)] >> text_.size()) & 1) != 0;
  }

 private:
  // Bit i: place i of the text.
  uint64_t Ends(const grammar::Expr& expr, uint64_t from) const {
    using Kind = grammar::Expr::Kind;
    uint64_t ends = 0;
    if (expr.kind == Kind::kSequence) {
      for (const grammar::Expr& part : expr.parts) from = Ends(part, from);
      return from;
    }
    if (expr.kind == Kind::kChoice) {
      for (const grammar::Expr& part : expr.parts) ends |= Ends(part, from);
      return ends;
    }
    if (expr.kind == Kind::kRepeat) {
      for (int64_t times = 0; times <= (expr.most < 0 ? 40 : expr.most); ++times) {
        if (times >= expr.least) ends |= from;
        from = Ends(expr.parts[0], from);
      }
      return ends;
    }
    for (size_t at = 0; at <= text_.size(); ++at) {
      if (((from >> at) & 1) == 0) continue;
      if (expr.kind == Kind::kRule) ends |= ends_[static_cast<size_t>(expr.rule) * (text_.size() + 1) + at];
      if (expr.kind == Kind::kText && text_.compare(at, expr.text.size(), expr.text) == 0)
        ends |= uint64_t{1} << (at + expr.text.size());
      for (const grammar::CharRange& range : expr.chars) {
        const auto c = static_cast<char32_t>(at < text_.size() ? text_[at] : 0);
        if (at < text_.size() && range.first <= c && c <= range.last) ends |= uint64_t{1} << (at + 1);
      }
    }
    return ends;
  }

  const grammar::Rules& rules_;
  const std::string& text_;
  std::vector<uint64_t> ends_;
};

TEST(Recursion, StandsForTheSameTexts) {
  for (const char* text : {
           "root ::= root root | [ab]",
           "root ::= root \"+\" root | \"-\" root | root \"!\" | [ab] | \"(\" root \")\"",
           "root ::= [ab] root | \"\"",
           "root ::= root [ab] | \"+\"",
           "root ::= root | [ab]",
           "root ::= (root (root)) | (([ab]))",
           "root ::= root+ | \"a\"",
           "root ::= root* | \"a\" \"b\"",
           "root ::= root{2} | \"a\"",
           "root ::= root{3} | \"a\" | \"b\" \"b\"",
           "root ::= root? \"a\" | \"b\"",
           "root ::= root? | \"b\"",
           "root ::= root{0,2} | \"b\"",
           "root ::= root{0} | \"b\" root",
           "root ::= root root root | [ab]",
           "root ::= root (\"+\" | \"-\" | root) root | \"a\"",
           "root ::= x root | root x | x\nx ::= \"a\" | x \"b\" | \"\"",
           "root ::= x x | \"b\"\nx ::= root | \"a\"",
           "root ::= (root | \"a\") (root | \"b\")",
           "root ::= (root \"a\" | \"b\") | (\"+\" root | \"\")",
           "root ::= root root",
           "root ::= root root root root | root root root | [ab]",
           "root ::= root root root | root \"+\" root | \"a\"",
           "root ::= root root root | \"+\" root | root \"!\" | \"a\"",
       }) {
    SCOPED_TRACE(text);
    const grammar::Rules rules = ParseGbnf(text);
    std::shared_ptr<const Automaton> automaton;
    try {
      automaton = Compiled(rules);
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "no text fits the grammar");
    }
    const std::string letters = "ab+-!()";
    std::string word;
    size_t fitting = 0;
    for (int number = 0; number < 1024; ++number) {  // all words of up to three letters, and some of four
      word.clear();
      for (int rest = number; rest > 0; rest /= 8) {
        if (rest % 8 != 0) word += letters[static_cast<size_t>(rest % 8 - 1)];
      }
      const bool fits = Oracle(rules, word).Fits();
      fitting += fits ? 1 : 0;
      ASSERT_EQ(automaton && Fits(automaton, word), fits) << word;
    }
    EXPECT_EQ(fitting > 0, automaton != nullptr);
  }
}

TEST(Recursion, AmbiguousRulesTakeLinearTime) {
  for (const char* text : {"root ::= root root | [a-z ]", "root ::= [a-z ] root | root [a-z ] | \"x\"",
                           "root ::= root root root | root root | [a-z ]+", "root ::= x\nx ::= x+ | [a-z ]",
                           "root ::= root [ ] root | root root | [a-z]"}) {
    SCOPED_TRACE(text);
    const auto automaton = Compiled(ParseGbnf(text));
    GrammarMatcher matcher(automaton);
    // All in the budget of one token.
    for (int i = 0; i < 100'000; ++i) ASSERT_TRUE(matcher.Push("abc x y"[i % 7]));
    EXPECT_LT(matcher.items().size(), 8u);
  }
}

}  // namespace
}  // namespace coppice
