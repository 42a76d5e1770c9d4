// The weights of a model, under the same names for every file format, as views into its mapped file.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "formats/tensor_store.h"
#include "kernels/backend.h"
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

// Of a layer with an embedding of its own (ModelShape::layer_embedding, p). Empty in others.
struct EmbeddingWeights {
  TensorView tokens;  // [vocab, d]: the model's embedding
  TensorView table;   // [vocab, p]
  Linear projection;  // [p, d] of the token's embedding
  Norm norm;          // [1, p] of what that gives
  Linear gate;        // [p, d]
  Linear output;      // [d, p]
  Norm post_norm;     // [1, d]
};

// Of a mixture of experts. Empty in a layer that has none.
struct MixtureWeights {
  Linear router;                               // [experts, d] fp32
  TensorView selection_bias;                   // [1, experts] fp32, or empty (kernels/routing.h)
  std::vector<Linear> gate, up, down;          // of each expert, as in LayerWeights; no gates without
  Linear shared_gate, shared_up, shared_down;  // of the shared expert; empty if there is none
  Linear shared_router;                        // [1, d] fp32: its sigmoid scales the shared expert; or empty
  // Gemma 4's, else empty. The FFN's norms are then those of the shared expert's input and of the whole.
  Norm router_norm, expert_norm;     // of the inputs of the router and of the experts
  Norm post_norm, shared_post_norm;  // of what the experts give, and the shared expert
  TensorView expert_scale;           // [1, experts]: multiplies the weights of the experts
};

// Of a mixer with a state (RecurrentShape). Empty in a layer that attends.
struct RecurrentWeights {
  Linear mixed;  // [channels, d]: what goes through the convolution; of a short convolution [3 d, d]: the
                 // gate in front of it, the gate behind it, and what it convolves
  Linear gate;   // [value_width, d]: of what the recurrence gives
  Linear step;   // [value_heads, d]
  Linear beta;   // [value_heads, d]: of the gated delta rule
  Convolution convolution;
  RecurrenceWeights recurrence;
  Norm norm;  // [1, value_dim], of each head of what the recurrence gives; of Mamba-2 [1, value_width]
  // The layer's last product is LayerWeights::output.
};

struct LayerWeights {
  Norm attention_norm;         // of the mixer's input; empty if the architecture, or the layer, has none
  Norm query_norm;             // [1, head_dim], of each head, or [1, heads * head_dim]; empty if it has none
  Norm key_norm;               // the same
  Norm value_norm;             // of each head; empty if it has none
  Linear query;                // [heads * head_dim, d]
  Linear key;                  // [kv_heads * head_dim, d]
  Linear value;                // [kv_heads * head_dim, d]
  Linear output;               // [d, heads * head_dim]
  Linear output_gate;          // [heads * head_dim, d]: LayerShape::output_gate; or empty
  TensorView sinks;            // [1, heads]; empty if the architecture has none
  Norm attention_post_norm;    // of the output, before it is added to x; empty if the architecture has none
  Norm ffn_norm;               // the same
  Linear gate;                 // [ffn, d]; empty if the FFN has two matrices
  Linear up;                   // [ffn, d]
  Linear down;                 // [d, ffn]
  Norm ffn_post_norm;          // as attention_post_norm
  RecurrentWeights recurrent;  // instead of attention's
  MixtureWeights mixture;      // instead of gate, up and down
  EmbeddingWeights own_embedding;
  float scale = 1;  // multiplies the layer's output
};

// Owns the tensors that had to be converted (norms and biases to fp32, BLOOM's fused q, k and v into three),
// and keeps alive the store to which all other views point. Const after loading; engines share it.
class Weights {
 public:
  // Finds every tensor and checks it against the config. Sets `config.shape.vocab` from the embedding if the
  // file's metadata has none. Throws Error, naming the file and the tensor.
  static std::shared_ptr<const Weights> Load(std::shared_ptr<const TensorStore> store, ModelConfig& config);
  // The same weights, each where the backend reads it fastest; `loaded` itself if it reads all where they
  // are. Throws Error if they do not fit. The backend must outlive the result.
  static std::shared_ptr<const Weights> Place(std::shared_ptr<const Weights> loaded, Backend& backend);

  TensorView embedding;              // [vocab, d]
  Norm embedding_norm;               // empty if the architecture has none
  std::vector<LayerWeights> layers;  // [layers and tail]; those of the tail have no keys and values
  Norm final_norm;
  Norm head_norm;                   // final_norm with the factor on logits: what the head reads
  Linear head;                      // [vocab, d]
  std::vector<float> rope_factors;  // rope_freqs.weight, or empty
  int64_t parameters = 0;
  int64_t active_parameters = 0;  // those that one token meets: of a mixture, the experts of a row
  int64_t bytes = 0;              // of the tensors used, as stored

 private:
  Weights() = default;
  friend class WeightsLoader;
  friend class WeightsReader;
  std::shared_ptr<const TensorStore> store_;
  std::vector<Tensor> owned_;
  std::shared_ptr<const Weights> loaded_;  // of placed weights: for those that stay where they are
};

// Something odd about a tensor. An all-zero tensor that is not a bias is suspicious but harmless; values that
// are not finite make every answer wrong.
struct TensorFinding {
  std::string text;  // names the tensor and says what is odd
  bool finite;
};

// Reads every tensor once.
std::vector<TensorFinding> CheckTensors(const TensorStore& store);

}  // namespace coppice
