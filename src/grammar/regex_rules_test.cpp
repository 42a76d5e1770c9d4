#include "grammar/regex_rules.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "grammar/grammar_test_support.h"
#include "grammar/json_text.h"

namespace coppice {

using namespace grammar;  // of expressions
namespace {

std::shared_ptr<const Automaton> Regex(std::string_view pattern) {
  return Compiled(ParseRegex(pattern, [](const CharSet& set) { return Chars(set); }));
}

TEST(RegexRulesTest, Patterns) {
  struct Case {
    const char* pattern;
    const char* fits;
    const char* does_not;
  };
  for (const Case& c :
       {Case{"^abc$", "abc", "abcd"}, Case{"abc", "xxabcyy", "ab"}, Case{"^a|b$", "axx", "xa"},
        Case{"^a|b$", "xxb", "bx"}, Case{"^(?:ab|c)+d?$", "abcabd", "d"},
        Case{"^(?<year>[0-9]{4})-\\d{2}$", "2026-11", "2026-1"}, Case{"^[^a-c\\d]$", "x", "3"},
        Case{"^[\\w.+-]+@x\\.y$", "a.b+c-d@x.y", "a@xzy"}, Case{"^\\u00e4.\\x41$", "äbA", "aäA"},
        Case{"^a{2,3}?$", "aaa", "a"}, Case{"^\\s\\S$", " x", "xx"}, Case{"^\\(\\$\\)$", "($)", "()"},
        Case{"^[]a]$", "", "a"}, Case{"", "anything", "\xFF"}}) {
    SCOPED_TRACE(c.pattern);
    const bool empty_class = std::string(c.pattern) == "^[]a]$";  // ECMA's [] matches nothing
    if (empty_class) {
      EXPECT_THROW(Regex(c.pattern), Error);
      continue;
    }
    const auto automaton = Regex(c.pattern);
    EXPECT_TRUE(Fits(automaton, c.fits));
    EXPECT_FALSE(Fits(automaton, c.does_not));
  }
}

TEST(RegexRulesTest, RefusesWhatIsNotRegular) {
  for (const char* pattern : {"(a)\\1", "a(?=b)", "(?<!a)b", "\\bword", "a^b", "a$b", "(", ")", "[a", "*",
                              "a{2", "a{3,2}", "[b-a]", "\\", "\\p{L}", "[\\d-z]"}) {
    EXPECT_THROW(Regex(pattern), Error) << pattern;
  }
}

TEST(RegexRulesTest, JsonSpellsWhatItMustEscape) {
  const auto automaton = Compiled(JsonQuoted(ParseRegex("^[\"\\\\\\n]x$", &JsonCharOf)));
  EXPECT_TRUE(Fits(automaton, R"("\"x")"));
  EXPECT_TRUE(Fits(automaton, R"("\\x")"));
  EXPECT_TRUE(Fits(automaton, R"("\nx")"));
  EXPECT_FALSE(Fits(automaton, "\"\nx\""));
}

}  // namespace
}  // namespace coppice
