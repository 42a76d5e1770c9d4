#include "engine/thinking_rules.h"

#include <utility>
#include <vector>

#include "engine/answer_reader.h"

namespace coppice {

using namespace grammar;  // of expressions

Expr WithThinking(const Thinking& thinking, Expr answer) {
  const ThinkingForm& form = thinking.form;
  const bool inside = thinking.start == ThinkingStart::kInside;
  if (!inside && thinking.start != ThinkingStart::kBefore) return answer;
  if (!form.channels) {
    const Expr blanks = Repeat(Chars({{'\t', '\n'}, {' ', ' '}}), 0, 4);
    const Expr rest = Sequence({Until(form.close), blanks});
    return Sequence({inside ? rest : Optional(Sequence({blanks, Text(form.open), rest})), std::move(answer)});
  }
  // gpt-oss' headers, and Muse Glimmer's, which have no channels.
  const bool has_channels = form.force.find("<|channel|>") != form.force.npos;
  const Expr end = Sequence({Until(has_channels ? "<|end|>" : "<|eom|>"), Text("<|start|>assistant")});
  const Expr begin =
      has_channels
          ? Choice({Text("<|channel|>analysis<|message|>"), Text("<|channel|>commentary<|message|>")})
          : Text(" to=self<|message|>");
  const Expr final = has_channels ? Sequence({Text("<|channel|>final"), Optional(Text(" <|constrain|>json"))})
                                  : Optional(Text(" to=user"));
  std::vector<Expr> parts;
  if (inside) parts.push_back(end);
  parts.push_back(Repeat(Sequence({begin, end}), 0));
  parts.push_back(final);
  parts.push_back(Text("<|message|>"));
  parts.push_back(std::move(answer));
  return Sequence(std::move(parts));
}

std::vector<TokenGrammar::Mark> ThinkingGrammarMarks(const Tokenizer& tokenizer, const Thinking& thinking) {
  std::vector<TokenGrammar::Mark> marks;
  for (const int32_t id : ControlTokens(tokenizer, ThinkingMarks(thinking.form)))
    marks.push_back({id, tokenizer.Piece(id, true)});
  return marks;
}

}  // namespace coppice
