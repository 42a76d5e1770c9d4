// GBNF, with the compilation of what was read and a walk along it.
#include "fuzz/fuzz_support.h"
#include "fuzz/fuzz_target.h"
#include "grammar/gbnf.h"
#include "grammar/grammar_test_support.h"

namespace coppice {
namespace {

std::vector<std::string> Seeds() {
  return {
      "root ::= value\nvalue ::= \"[\" (value (\",\" value)*)? \"]\" | [0-9]+ | \"\\\"\" [^\"\\x00-\\x1F]* "
      "\"\\\"\"\n",
      "root ::= root \"+\" n | n # left\nn ::= [a-z]{1,3} | \"(\" root \")\"\n",
      "root ::= .? [^a-c\\u00e4-\\U0001F600]{2,} (\"x\" | \"\"){0,4}\n  | \"y\"\n"};
}

bool Run(std::string_view input) {
  return Accepts([&] {
    const auto automaton = std::make_shared<const Automaton>(Compile(ParseGbnf(input)));
    // Every text of the grammar can be ended: from wherever a walk leads, some byte goes on, or the text may
    // end.
    GrammarMatcher matcher(automaton);
    for (int step = 0; step < 20; ++step) {
      matcher.RenewBudget();
      bool goes_on = false;
      for (int byte = 0; byte < 256 && !goes_on; ++byte)
        goes_on = matcher.Push(static_cast<uint8_t>((byte * 37 + step * 11) & 0xFF));
      if (!goes_on && !matcher.can_end()) abort();
      if (!goes_on) break;
    }
  });
}

}  // namespace

FuzzTarget GrammarTarget() {
  return {"grammar",
          Seeds,
          {"::=",     "root",      "|",      "(",        ")",          "*",     "+",
           "?",       "{2,3}",     "{1000}", "{100000}", "{0,100000}", "\"\"{", "\"\"",
           "(\"\")*", "root root", "\"a\"",  "[^a-z]",   "\\u00e4",    "#",     "."},
          Run};
}

}  // namespace coppice
