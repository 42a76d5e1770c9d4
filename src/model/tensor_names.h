// The names of a model's tensors in the files of either format.
#pragma once

#include <string>

#include "formats/tensor_store.h"
#include "model/config.h"

namespace coppice {

// A format's names for the tensors of an architecture; "" if it has no such tensor. `qkv` is a fused tensor.
struct TensorNames {
  std::string embedding, embedding_norm, final_norm, head, layer_prefix;
  std::string attention_norm, query, key, value, qkv, output, ffn_norm, gate, up, down;
  std::string query_norm = {}, key_norm = {}, attention_post_norm = {}, ffn_post_norm = {};
  std::string sinks = {}, output_gate = {};
  // Gemma 4's; those of the layers' embeddings are in the order of EmbeddingWeights.
  std::string layer_scale = {};
  std::string layer_table = {}, layer_projection = {}, layer_norm = {};
  std::string embedding_gate = {}, embedding_output = {}, embedding_post_norm = {};
  std::string gate_up = {};  // gate's rows and then up's, in files that have no gate
};

TensorNames GgufTensorNames(const ModelConfig& config);
// `store` says what stands before the names.
TensorNames HfTensorNames(const ModelConfig& config, const TensorStore& store);

}  // namespace coppice
