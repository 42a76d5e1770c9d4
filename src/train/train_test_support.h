// Shared by the tests of this folder: a tiny model in torch and in the engine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "model/transformer.h"
#include "test_files.h"
#include "tiny_model.h"
#include "train/frozen_model.h"

namespace coppice {

// Logits [tokens, vocab] of the reference backend.
inline std::vector<float> EngineLogits(const Transformer& model, const std::vector<int32_t>& tokens) {
  const std::unique_ptr<Backend> be = MakeBackend("reference", {.threads = 1, .exact = true});
  const auto count = static_cast<int64_t>(tokens.size());
  SequenceState sequence = model.NewSequence(count, count, *be);
  Workspace ws = model.NewWorkspace(64);
  TokenPolicy dense;
  Tensor logits;
  model.Prefill(tokens, {dense, sequence, ws, *be}, logits, true);
  std::vector<float> all;
  for (int64_t row = 0; row < logits.rows(); ++row) {
    const std::span<const float> values = logits.view().Row<float>(row);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

inline void ExpectNear(const std::vector<float>& got, const std::vector<float>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], tolerance) << "value " << i;
}

inline std::unique_ptr<FrozenModel> MakeFrozen(const TinyModel& tiny) {
  ModelConfig config = tiny.config;
  std::shared_ptr<const Weights> weights = Weights::Load(tiny.store, config);
  return std::make_unique<FrozenModel>(config, std::move(weights));
}

}  // namespace coppice
