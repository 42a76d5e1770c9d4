#include "eval/attention_mass.h"

#include <algorithm>
#include <memory>
#include <string>

#include "eval/trace_sums.h"
#include "policies/policy.h"

namespace coppice {

namespace {

constexpr int64_t kTileRows = 512;

// Drops nothing, and records attention mass.
class MassProbe final : public TokenPolicy {
 public:
  Needs NeedsAt(Phase, int) const override { return {.masses = {kMass}, .unit_scores = {}}; }
  TokenSet AfterAttention(const Observation& seen, Backend&) override {
    if (seen.layer + 1 < seen.layers) curves.push_back(MassCurve(seen.AttentionMass(kMass).Row<float>(0)));
    return TokenSet::All(seen.rows());
  }

  std::vector<std::vector<double>> curves;

 private:
  static inline const Needs::Mass kMass{.queries = kMassQueries};
};

}  // namespace

std::vector<std::vector<double>> AttentionMassOf(const Engine& engine, std::span<const int32_t> tokens,
                                                 const std::atomic<bool>* cancelled) {
  // Cuts a prompt that is too long, as RunSample does.
  tokens = tokens.last(std::min(tokens.size(), static_cast<size_t>(engine.context())));
  // A backend of its own, so that the engine's operation times do not count this run.
  const std::unique_ptr<Backend> backend =
      MakeBackend(std::string(engine.backend().name()),
                  {.threads = engine.backend().threads(), .cache_type = engine.backend().cache_dtype()});
  const auto count = static_cast<int64_t>(tokens.size());
  SequenceState sequence = engine.model().NewSequence(count, count, *backend);
  Workspace workspace = engine.model().NewWorkspace(kTileRows, backend->memory());
  MassProbe probe;
  Tensor logits;
  engine.model().Prefill(
      tokens, {probe, sequence, workspace, *backend, {.progress = {}, .cancelled = cancelled}}, logits);
  return std::move(probe.curves);
}

}  // namespace coppice
