// The logits of every position of a text, without an answer.
#include <atomic>
#include <memory>
#include <span>

#include "engine/engine.h"

namespace coppice {

void Engine::Score(std::span<const int32_t> tokens, const LogitsVisitor& visit,
                   const std::atomic<bool>* cancelled) {
  const int64_t count = std::ssize(tokens);
  CheckTokens(tokens, transformer_.config().shape.vocab, context_);
  TokenPolicy dense;
  SequenceState sequence = transformer_.NewSequence(count, count, *backend_);
  std::unique_ptr<Workspace> workspace = TakeWorkspace();
  const Pass pass{dense, sequence, *workspace, *backend_, {.progress = {}, .cancelled = cancelled}};
  Tensor last;
  transformer_.PrefillScored(tokens, pass, last, visit);
  PutBack(std::move(workspace));
}

}  // namespace coppice
