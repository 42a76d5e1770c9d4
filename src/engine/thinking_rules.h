// Grammars of answers in front of which a model thinks.
#pragma once

#include <optional>
#include <vector>

#include "engine/thinking.h"
#include "grammar/rules.h"
#include "grammar/token_filter.h"
#include "text/tokenizer/tokenizer.h"

namespace coppice {

// The answer behind the thinking, which may be anything: a model may think first (ThinkingForm::has_switch),
// or goes on to think where the prompt has begun that.
struct MessageForms {
  std::optional<grammar::Expr> answer = {};
  // With ThinkingForm::channels: instead of the answer, a message with its own header.
  std::optional<grammar::Expr> other = {};
};
grammar::Expr WithThinking(const Thinking& thinking, MessageForms messages);

// The control tokens that such a grammar reads.
std::vector<TokenGrammar::Mark> ThinkingGrammarMarks(const Tokenizer& tokenizer, const Thinking& thinking);

}  // namespace coppice
