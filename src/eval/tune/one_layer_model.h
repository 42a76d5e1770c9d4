// For tests: a model that has nothing to tune, because its one layer computes one row in a prefill.
#pragma once

#include <span>
#include <string>

#include "base/threads.h"
#include "formats/gguf_writer.h"
#include "model/synthetic.h"

namespace coppice {

inline void WriteOneLayerModel(const std::string& path) {
  SyntheticModel model = ParseShape("tiny:f32");
  ModelShape& s = model.config.shape;
  s.layers.resize(1);
  GgufWriter writer;
  writer.Add("general.architecture", "llama");
  writer.Add("llama.context_length", uint32_t{512});
  writer.Add("llama.embedding_length", static_cast<uint32_t>(s.hidden));
  writer.Add("llama.block_count", static_cast<uint32_t>(s.layer_count()));
  writer.Add("llama.feed_forward_length", static_cast<uint32_t>(s.layer(0).ffn));
  writer.Add("llama.attention.head_count", static_cast<uint32_t>(s.layer(0).heads));
  writer.Add("llama.attention.head_count_kv", static_cast<uint32_t>(s.layer(0).kv_heads));
  writer.Add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  static const ThreadPool pool(1);
  for (const SyntheticModel::TensorPlan& plan : model.Tensors()) {
    writer.AddTensor(plan.name, plan.type, plan.shape,
                     [plan](std::span<std::byte> bytes) { FillSynthetic(plan, bytes, pool); });
  }
  writer.Write(path);
}

}  // namespace coppice
