#include "engine/request.h"

#include "base/field_error.h"

namespace coppice {

void CheckTokens(std::span<const int32_t> prompt, int64_t vocab, int64_t context) {
  if (prompt.empty()) throw Error("the prompt is empty");
  for (const int32_t id : prompt) {
    if (id < 0 || id >= vocab) throw Error("prompt token {} is not in the vocabulary of {}", id, vocab);
  }
  if (std::ssize(prompt) > context) {
    throw FieldError(
        "context",
        " {}: the prompt has {} tokens, which exceeds the available context size; shorten it, or raise the "
        "context where the model allows",
        context, prompt.size());
  }
}

void CheckRequest(const Request& request, int64_t vocab, int64_t context) {
  CheckTokens(request.tokens, vocab, context);
  for (const int32_t id : request.forced) {
    if (id < 0 || id >= vocab) throw Error("forced token {} is not in the vocabulary of {}", id, vocab);
  }
  if (!(request.least_confidence >= 0 && request.least_confidence <= 1))
    throw FieldError("least_confidence", " {}: not a probability from 0 to 1", request.least_confidence);
  if (request.max_tokens < -1)
    throw FieldError("max_tokens", " {}: not a whole number from -1", request.max_tokens);
  if (request.min_tokens < 0)
    throw FieldError("min_tokens", " {}: not a whole number from 0", request.min_tokens);
  if (request.min_tokens > 0 && request.grammar)
    throw FieldError("min_tokens", " {}: does not go with a grammar", request.min_tokens);
  if (request.protection.first < 0)
    throw FieldError("protect_first", " {}: not a number of tokens", request.protection.first);
  if (request.protection.last < 0)
    throw FieldError("protect_last", " {}: not a number of tokens", request.protection.last);
  int64_t behind = 0;
  for (const PositionSpan& span : request.question) {
    if (span.begin < behind || span.end <= span.begin || span.end > std::ssize(request.tokens)) {
      throw FieldError("question",
                       " {}:{}: spans ascend, hold a token each and lie inside the prompt of {} tokens",
                       span.begin, span.end, request.tokens.size());
    }
    behind = span.end;
  }
  Validate(request.sampling);
}

}  // namespace coppice
