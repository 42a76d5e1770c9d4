// The weights of a model, under one set of names, as views into its mapped file.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "formats/tensor_store.h"
#include "model/config.h"
#include "tensor/tensor.h"

namespace coppice {

// y = x weight^T + bias.
struct Linear {
  TensorView weight;  // [outputs, inputs], any type
  TensorView bias;    // [1, outputs] fp32, or empty
};

struct Norm {
  TensorView weight;  // [1, d] fp32
  TensorView bias;    // [1, d] fp32, or empty
};

struct LayerWeights {
  Norm attention_norm;
  Linear query;   // [heads * head_dim, d]
  Linear key;     // [kv_heads * head_dim, d]
  Linear value;   // [kv_heads * head_dim, d]
  Linear output;  // [d, heads * head_dim]
  Norm ffn_norm;
  Linear gate;  // [ffn, d]; empty where the FFN has two matrices
  Linear up;    // [ffn, d]
  Linear down;  // [d, ffn]
};

// Owns what had to be converted (norms and biases to fp32, BLOOM's fused q, k and v taken apart) and keeps
// the store, into which everything else points, alive. Const after loading; shared by engines.
class Weights {
 public:
  // Finds, names and checks every tensor against the config. `config.shape.vocab` is taken from the embedding
  // where the file's metadata has none. Throws Error, naming the file and the tensor.
  static std::shared_ptr<const Weights> Load(std::shared_ptr<const TensorStore> store, ModelConfig& config);

  TensorView embedding;  // [vocab, d]
  Norm embedding_norm;   // empty where the architecture has none
  std::vector<LayerWeights> layers;
  Norm final_norm;
  Linear head;                      // [vocab, d]
  std::vector<float> rope_factors;  // rope_freqs.weight, or empty
  int64_t parameters = 0;
  int64_t bytes = 0;  // of the tensors in use, as stored

 private:
  Weights() = default;
  friend class WeightsLoader;
  std::shared_ptr<const TensorStore> store_;
  std::vector<Tensor> owned_;
};

// Something about a tensor that its maker should know. All-zero tensors are odd (biases apart) but harmless; values that
// are not finite make every answer wrong.
struct TensorFinding {
  std::string text;  // names the tensor
  bool finite;
};

// Reads every tensor once (--check-tensors).
std::vector<TensorFinding> CheckTensors(const TensorStore& store);

}  // namespace coppice
