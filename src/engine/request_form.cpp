#include "engine/request_form.h"

#include <algorithm>
#include <string>

#include "engine/engine.h"

namespace coppice {

namespace {

constexpr int64_t kEnding = 96;  // tokens of a prompt that are read
// Of a question: so many last tokens. A longer one is a message with a document, which may hold no question.
constexpr int64_t kQuestionEnding = 64;
constexpr int64_t kLongQuestion = 512;

}  // namespace

PromptForm FormOfRequest(const Request& request, const Tokenizer* tokenizer) {
  if (tokenizer == nullptr || request.tokens.empty()) return PromptForm::kQuestion;
  // A beginning that is read ahead: its question is still to come, and uses the states of this run.
  if (request.max_tokens == 0) return PromptForm::kQuestion;
  int64_t end = std::ssize(request.tokens), begin = std::max<int64_t>(end - kEnding, 0);
  bool marked = false;
  if (!request.question.empty()) {
    const PositionSpan& last = request.question.back();
    end = std::clamp<int64_t>(last.end, 0, end);
    begin = std::clamp<int64_t>(last.begin, 0, end);
    marked = end - begin <= kLongQuestion;
    begin = std::max(begin, end - kQuestionEnding);
  }
  std::string ending;
  for (int64_t i = begin; i < end; ++i) ending += tokenizer->Piece(request.tokens[static_cast<size_t>(i)]);
  return FormOf(ending, marked);
}

ResolvedPrune Engine::ResolveFor(const Request& request, bool kept) {
  const PromptStates states = kept ? PromptStates::kKept : PromptStates::kDiscarded;
  return ResolvePrune(request.prune, std::ssize(request.tokens), states,
                      [&] { return FormOfRequest(request, tokenizer_.get()); });
}

}  // namespace coppice
