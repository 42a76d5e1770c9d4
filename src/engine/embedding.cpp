#include "engine/embedding.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>

#include "engine/engine.h"

namespace coppice {

std::vector<float> Pool(const TensorView& states, Pooling pooling) {
  const std::span<const float> last = states.Row<float>(states.rows - 1);
  if (pooling == Pooling::kLast) return {last.begin(), last.end()};
  if (pooling == Pooling::kNone) {
    std::vector<float> all;
    for (int64_t row = 0; row < states.rows; ++row) {
      const std::span<const float> state = states.Row<float>(row);
      all.insert(all.end(), state.begin(), state.end());
    }
    return all;
  }
  std::vector<double> sum(last.size(), 0);
  for (int64_t row = 0; row < states.rows; ++row) {
    const std::span<const float> state = states.Row<float>(row);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(state[i]);
  }
  std::vector<float> mean(sum.size());
  for (size_t i = 0; i < sum.size(); ++i)
    mean[i] = static_cast<float>(sum[i] / static_cast<double>(states.rows));
  return mean;
}

void Normalize(int norm, std::vector<float>& embedding) {
  if (norm < 0) return;
  double size = 0;
  for (const float value : embedding) {
    const double magnitude = std::abs(static_cast<double>(value));
    size = norm == 0 ? std::max(size, magnitude / 32760) : size + std::pow(magnitude, norm);
  }
  if (norm > 0) size = std::pow(size, 1.0 / norm);
  if (size == 0 || !std::isfinite(size)) return;
  for (float& value : embedding) value = static_cast<float>(static_cast<double>(value) / size);
}

std::vector<float> Engine::Embed(std::span<const int32_t> tokens, Pooling pooling,
                                 const RunControl& control) {
  const int64_t count = std::ssize(tokens);
  CheckTokens(tokens, transformer_.config().shape.vocab, context_);
  TokenPolicy dense;
  SequenceState sequence = transformer_.NewSequence(count, count, *backend_);
  std::unique_ptr<Workspace> workspace = TakeWorkspace();
  std::vector<float> embedding;
  transformer_.PrefillStates(tokens, {dense, sequence, *workspace, *backend_, control},
                             pooling == Pooling::kLast,
                             [&](const TensorView& states) { embedding = Pool(states, pooling); });
  PutBack(std::move(workspace));
  return embedding;
}

}  // namespace coppice
