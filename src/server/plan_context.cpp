#include "server/plan_context.h"

#include "model/sequence.h"

namespace coppice {

MethodContext PlanContext(const Engine& engine, int64_t tokens) {
  const ModelShape& shape = engine.model().config().shape;
  const DType cache = engine.backend().cache_dtype();
  return {.shape = shape,
          .tokens = tokens,
          .parked_bytes = ParkedBytes(shape, cache),
          .layer_bytes = LayerBytes(shape, cache),
          .pieces = [] { return std::vector<std::string>(); },
          .open_scorer = [](const std::string&) { return TokenScores(); },
          .open_words = [](const std::string&) { return WordReader(); },
          .open_draft = [](const std::string&) { return Draft(); }};
}

}  // namespace coppice
