// The description of a model: what its file says, in one form for GGUF and Hugging Face.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "policies/shape.h"

namespace coppice {

enum class NormKind { kRms, kLayer };
enum class FfnKind { kSwiGlu, kGelu };
enum class PositionKind { kRope, kAlibi };

struct RopeConfig {
  enum class Scaling { kNone, kLinear, kYarn, kLlama3 };
  int dims = 0;              // rotated dimensions per head, even
  double base = 10000;       // theta
  bool interleaved = false;  // GGUF stores Llama's heads for pairs (2i, 2i + 1)
  Scaling scaling = Scaling::kNone;
  double factor = 1;
  int64_t original_context = 0;
  double low_freq_factor = 1;   // llama3
  double high_freq_factor = 4;  // llama3
  double beta_fast = 32;        // yarn
  double beta_slow = 1;         // yarn
  double attention_factor = 0;  // yarn: of cos and sin; 0: 0.1 ln(factor) + 1
};

struct ModelConfig {
  ModelShape shape;
  int64_t context = 0;
  double norm_eps = 1e-5;
  NormKind norm = NormKind::kRms;
  FfnKind ffn = FfnKind::kSwiGlu;
  PositionKind position = PositionKind::kRope;
  RopeConfig rope;  // for kRope
  bool qkv_bias = false;
  bool all_biases = false;      // every product and norm has one (BLOOM)
  bool embedding_norm = false;  // a norm right after the embedding (BLOOM)
  bool tied_head = false;       // the output head is the embedding
  bool hf_names = false;        // tensors are named, and BLOOM's q, k, v fused, as Hugging Face does it
};

// Throws Error, naming the file and the key, for what is missing, out of range, or not supported.
ModelConfig ConfigFromGguf(const GgufMetadata& metadata);
ModelConfig ConfigFromHf(const nlohmann::json& config, const std::string& path);

// ALiBi's slope of each head (BLOOM's form, also for head counts that are no power of two).
std::vector<float> AlibiSlopes(int heads);

}  // namespace coppice
