// Grammars of answers in front of which a model thinks.
#pragma once

#include <vector>

#include "engine/thinking.h"
#include "grammar/rules.h"
#include "grammar/token_filter.h"
#include "text/tokenizer/tokenizer.h"

namespace coppice {

// `answer` behind the thinking, which may be anything: a model may think first, or goes on to think where the
// prompt has begun that.
grammar::Expr WithThinking(const Thinking& thinking, grammar::Expr answer);

// The control tokens that such a grammar reads.
std::vector<TokenGrammar::Mark> ThinkingGrammarMarks(const Tokenizer& tokenizer, const Thinking& thinking);

}  // namespace coppice
