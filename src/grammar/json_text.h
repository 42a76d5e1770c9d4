// The pieces that JSON texts are made of, as a grammar.
#pragma once

#include <string>

#include "grammar/rules.h"

namespace coppice {

// Between tokens: nothing, a space, or new lines with an indentation. Bounded, because a model that may
// write spaces without end sometimes does.
grammar::Expr JsonSpace();
// One character of a JSON string, as it is or escaped; never half of a surrogate pair.
grammar::Expr JsonChar();
// One character of the set in a JSON string, escaped only where it must be.
grammar::Expr JsonCharOf(const grammar::CharSet& set);
grammar::Expr JsonQuoted(grammar::Expr chars);
// A whole number, and any number; at most 16 digits, so that it is exact in a double.
grammar::Expr JsonInteger();
grammar::Expr JsonNumber();

}  // namespace coppice
