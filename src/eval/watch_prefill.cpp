#include "eval/watch_prefill.h"

#include <memory>

namespace coppice {

void WatchPrefill(const Engine& engine, std::span<const int32_t> tokens, TokenPolicy& policy,
                  const std::atomic<bool>* cancelled, LastLayer last) {
  constexpr int64_t kTileRows = 512;
  const std::unique_ptr<Backend> backend = engine.NewBackend();
  const auto count = static_cast<int64_t>(tokens.size());
  SequenceState sequence = engine.model().NewSequence(count, count, *backend);
  Workspace workspace = engine.model().NewWorkspace(kTileRows, backend->memory());
  const Pass pass{policy, sequence, workspace, *backend, {.progress = {}, .cancelled = cancelled}};
  if (last == LastLayer::kAllRows) {
    engine.model().PrefillStates(tokens, pass, false, [](const TensorView&) {});
  } else {
    engine.model().PrefillLayers(tokens, pass);
  }
}

}  // namespace coppice
