// The description of a model, in one form for GGUF and Hugging Face files.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/model_shape.h"
#include "kernels/activation.h"
#include "kernels/routing.h"

namespace coppice {

// Whose tensor names the files have.
enum class NameStyle { kUsual, kLfm2, kNemotron };
enum class NormKind { kRms, kLayer };
enum class EmbeddingNorm { kNone, kStored, kWeightless };
enum class FfnKind { kSwiGlu, kGeGlu, kGelu, kSwiGluOai, kReluSquared };

// Of a gated FFN's gate; of a squared ReLU, which has none, that of its one matrix.
Activation ActivationOf(FfnKind ffn);

struct RopeConfig {
  enum class Scaling { kNone, kLinear, kYarn, kLlama3, kLongRope, kProportional };
  int dims = 0;              // rotated dimensions per head, even
  double base = 10000;       // theta
  bool interleaved = false;  // rotates pairs (2i, 2i + 1), the order of Llama's heads in GGUF
  Scaling scaling = Scaling::kNone;
  double factor = 1;
  int64_t original_context = 0;  // longrope: prompts up to it have the short factors
  double low_freq_factor = 1;    // llama3
  double high_freq_factor = 4;   // llama3
  double beta_fast = 32;         // yarn
  double beta_slow = 1;          // yarn
  // yarn and longrope: multiplies cos and sin; 0: the paper's for the factor
  double attention_factor = 0;
  bool truncate = true;  // yarn: whole dimensions bound the ramp
  double rotating = 1;   // proportional: the share of the pairs of dimensions that rotate, the first ones
  std::vector<float> short_factors = {};  // longrope: [dims / 2] divide the frequencies
  std::vector<float> long_factors = {};

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

// The factor 1 + beta ln(1 + floor(position / context)) on queries, as Llama 4 and Ministral 3 have it.
struct QueryTemperature {
  double beta = 0;  // 0: none
  int64_t context = 1;

  friend bool operator==(const QueryTemperature&, const QueryTemperature&) = default;
};

struct ModelConfig {
  ModelShape shape;
  int64_t context = 0;
  double norm_eps = 1e-5;
  double recurrent_norm_eps = 1e-6;  // of the norm of what a recurrence gives
  double post_norm_eps = 0;          // of the norms of what is added to x; 0: norm_eps
  NormKind norm = NormKind::kRms;
  FfnKind ffn = FfnKind::kSwiGlu;
  // LayerShape::rope is an index into it; the file's frequency factors are the first one's. Empty if the
  // model has ALiBi, or no positions.
  std::vector<RopeConfig> ropes;
  bool window_ropes = false;  // the layers with a window have ropes of their own
  bool qkv_bias = false;
  bool ffn_biases = false;                              // the FFN's linear maps have one
  bool all_biases = false;                              // every linear map and norm has a bias (BLOOM)
  EmbeddingNorm embedding_norm = EmbeddingNorm::kNone;  // right after the embedding
  bool gate_in_query = false;  // LayerShape::output_gate: the query's matrix has both, head by head
  bool head_norms = false;     // a norm of each head of queries and keys, before RoPE
  bool whole_norms = false;    // head_norms: one for all heads of a row
  // Gemma 4's: values have a norm and may be the keys, a layer's output may be scaled as a whole, and a
  // mixture is beside the layer's FFN, with norms for each of them.
  bool gemma4_layers = false;
  bool pre_norms = true;  // a norm before attention and before the FFN
  bool sinks = false;     // each head of an attention has one (kernels/backend.h)
  NameStyle names = NameStyle::kUsual;
  const char* gguf_ffn_norm = "ffn_norm";  // GGUF's name of the norm before the FFN
  double embedding_scale = 1;
  double logit_scale = 1;
  double logit_cap = 0;     // c tanh(logit / c); 0: none
  RouterRule router = {};   // of the layers with a mixture; `used` is MixtureShape's
  bool router_bias = true;  // experts are chosen with the bias that a sigmoid's router may have
  QueryTemperature query_temperature = {};
  double attention_scale = 0;  // factor on q . k; 0: 1 / sqrt(head_dim)
  double norm_offset = 0;      // added to the weights of norms as stored; of the last one:
  double final_norm_offset = 0;
  double hf_query_norm = 0;  // head_norms: all weights of queries' norm, and 1 of keys'; 0: the file has them
  bool fused_hf = false;     // Hugging Face's files have one matrix for q, k and v, and one for gate and up
  bool tied_head = false;    // the output head is the embedding
  bool hf_names = false;     // Hugging Face's tensor names, and its order in BLOOM's fused q, k, v
};

// These throw Error, naming the file and the key, for a value that is missing, out of range, or not
// supported.
ModelConfig ConfigFromGguf(const GgufMetadata& metadata);
ModelConfig ConfigFromHf(const nlohmann::json& config, const std::string& path);

// Whether keys depend on the length of the prompt that they are part of, for prompts of up to `context`
// tokens: then no prompt can take over those of another.
bool KeysDependOnLength(const ModelConfig& config, int64_t context);

// The factor on q . k in a layer.
float AttentionScale(const ModelConfig& config, const LayerShape& layer);

// ALiBi's slope of each head (BLOOM's form, which also covers head counts that are not a power of two).
std::vector<float> AlibiSlopes(int heads);

}  // namespace coppice
