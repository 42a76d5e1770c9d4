// Regular expressions of JSON schemas (the parts of ECMA-262 that are regular) as a grammar.
#pragma once

#include <functional>
#include <string_view>

#include "grammar/rules.h"

namespace coppice {

// Texts that contain a match of `pattern`, as JSON schemas mean it: anything may stand before and behind
// unless ^ and $ stand there. `spell` writes one character of a set. Throws Error for what is not regular
// (references back, looking around, \b) and for what is not understood.
grammar::Expr ParseRegex(std::string_view pattern,
                         const std::function<grammar::Expr(const grammar::CharSet&)>& spell);

}  // namespace coppice
