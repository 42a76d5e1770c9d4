// GBNF, with the compilation of what was read and a walk along it.
#include "fuzz/fuzz_support.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/grammar_walk.h"
#include "grammar/gbnf.h"

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
    WorkBudget budget = BudgetOf(input);
    const grammar::Rules rules = ParseGbnf(input, budget);
    WalkAlong(CompiledWithin(budget, rules));
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
