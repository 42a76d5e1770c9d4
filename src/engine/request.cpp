#include "engine/request.h"

#include "base/error.h"

namespace coppice {

void CheckTokens(std::span<const int32_t> prompt, int64_t vocab, int64_t context) {
  if (prompt.empty()) throw Error("the prompt is empty");
  for (const int32_t id : prompt) {
    if (id < 0 || id >= vocab) throw Error("prompt token {} is not in the vocabulary of {}", id, vocab);
  }
  if (std::ssize(prompt) > context) {
    throw Error(
        "the prompt has {} tokens, the context {}: shorten it, or raise --ctx-size where the model allows",
        prompt.size(), context);
  }
}

void CheckRequest(const Request& request, int64_t vocab, int64_t context) {
  CheckTokens(request.tokens, vocab, context);
  for (const int32_t id : request.forced) {
    if (id < 0 || id >= vocab) throw Error("forced token {} is not in the vocabulary of {}", id, vocab);
  }
  if (!(request.least_confidence >= 0 && request.least_confidence <= 1))
    throw Error("--fallback {}: not a probability from 0 to 1", request.least_confidence);
  if (request.max_tokens < -1) throw Error("--predict {}: not a whole number from -1", request.max_tokens);
  if (request.protection.first < 0 || request.protection.last < 0)
    throw Error("--protect-first and --protect-last count tokens");
  int64_t behind = 0;
  for (const PositionSpan& span : request.question) {
    if (span.begin < behind || span.end <= span.begin || span.end > std::ssize(request.tokens)) {
      throw Error(
          "--query-span {}:{}: spans ascend, hold a token each and lie inside the prompt of {} tokens",
          span.begin, span.end, request.tokens.size());
    }
    behind = span.end;
  }
  Validate(request.sampling);
}

}  // namespace coppice
