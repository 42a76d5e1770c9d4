// What the readers of both formats share: the sizes of layers, and what an architecture's row says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/architectures.h"
#include "model/config.h"
#include "model/config_keys.h"

namespace coppice {

// A file's keys. An empty key counts as absent.
struct ShapeKeys {
  std::string layers, hidden, ffn, heads, kv_heads, head_dim, vocab, context, eps;
};

// Sets the layers, without windows and ropes. `default_ffn`: the FFN's width in units of the hidden size,
// where the file gives none.
void ReadShape(const KeyReader& read, const ShapeKeys& keys, std::optional<int64_t> default_ffn,
               ModelConfig& c);

// Sets what the row says, before the sizes are known.
void ApplyArchitecture(const Architecture& row, ModelConfig& c);

// Sets which layers have a gate on attention's output.
void SetOutputGates(const Architecture& row, ModelConfig& c);

// Refuses a softcap that is not computed.
void RefuseSoftcap(const KeyReader& read, const std::string& key);

// A factor that is positive and within what fp32 holds; 1 if the key is absent.
double ReadMultiplier(const KeyReader& read, const std::string& key);

// Reads what the head's logits are multiplied by, and their cap.
struct LogitKeys {
  std::string scale, cap;
  bool may_lack_cap = false;  // a file without the key, or with 0, has no cap
};
void ReadLogits(const KeyReader& read, const LogitKeys& keys, ModelConfig& c);

struct MultiplierKeys {
  std::string embedding, residual, attention, logits;
};

// Reads Granite's multipliers: of the embedding, of what a layer adds to x, of q . k, and what logits are
// divided by.
void ReadMultipliers(const KeyReader& read, const MultiplierKeys& keys, ModelConfig& c);

}  // namespace coppice
