#include "engine/thinking_rules.h"

#include <utility>
#include <vector>

#include "engine/answer_reader.h"

namespace coppice {

using namespace grammar;  // of expressions

namespace {

// gpt-oss' headers, and Muse Glimmer's, which have no channels.
Expr WithMessages(const ThinkingForm& form, bool inside, MessageForms messages) {
  const bool has_channels = form.force.find("<|channel|>") != form.force.npos;
  const Expr end = Sequence({Until(has_channels ? "<|end|>" : "<|eom|>"), Text("<|start|>assistant")});
  const Expr begin =
      has_channels
          ? Choice({Text("<|channel|>analysis<|message|>"), Text("<|channel|>commentary<|message|>")})
          : Text(" to=self<|message|>");
  const Expr header = has_channels
                          ? Sequence({Text("<|channel|>final"), Optional(Text(" <|constrain|>json"))})
                          : Optional(Text(" to=user"));
  std::vector<Expr> last;
  if (messages.answer) last.push_back(Sequence({header, Text("<|message|>"), *std::move(messages.answer)}));
  if (messages.other) last.push_back(*std::move(messages.other));
  std::vector<Expr> parts;
  if (inside) parts.push_back(end);
  parts.push_back(Repeat(Sequence({begin, end}), 0));
  parts.push_back(Choice(std::move(last)));
  return Sequence(std::move(parts));
}

}  // namespace

Expr WithThinking(const Thinking& thinking, MessageForms messages) {
  const ThinkingForm& form = thinking.form;
  const bool inside = thinking.start == ThinkingStart::kInside;
  const bool may_begin = thinking.start == ThinkingStart::kBefore && form.has_switch;
  if (form.channels && (inside || may_begin)) return WithMessages(form, inside, std::move(messages));
  Expr answer = *std::move(messages.answer);
  if (!inside && !may_begin) return answer;
  const Expr blanks = Repeat(Chars({{'\t', '\n'}, {' ', ' '}}), 0, 4);
  const Expr rest = Sequence({Until(form.close), blanks});
  return Sequence({inside ? rest : Optional(Sequence({blanks, Text(form.open), rest})), std::move(answer)});
}

std::vector<TokenGrammar::Mark> ThinkingGrammarMarks(const Tokenizer& tokenizer, const Thinking& thinking) {
  std::vector<TokenGrammar::Mark> marks;
  for (const int32_t id : ControlTokens(tokenizer, ThinkingMarks(thinking.form)))
    marks.push_back({id, tokenizer.Piece(id, true)});
  return marks;
}

}  // namespace coppice
