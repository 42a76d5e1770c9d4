// Models of blocks that hold one thing alone: attention, a state, an FFN or experts (Nemotron-H).
#pragma once

#include <string>
#include <vector>

#include "formats/gguf.h"
#include "model/config.h"
#include "model/config_keys.h"

namespace coppice {

enum class BlockKind { kAttention, kState, kFfn, kMixture };

// The kinds of a config.json's blocks, from its list or its pattern. Throws Error for a kind that is unknown,
// and for a number other than `layers`.
std::vector<BlockKind> HfBlocks(const HfKeys& keys, int layers);
// Gives the config.json `path` of such a model the number of layers, which transformers counts in its list.
void CountHfBlocks(const std::string& path, nlohmann::json& config);
// The same from a GGUF file's widths of FFNs and numbers of key heads. `shape` has the mixtures, and the
// model's own layers alone, without those behind them that predict further tokens.
std::vector<BlockKind> GgufBlocks(const GgufMetadata& metadata, const std::string& prefix,
                                  const ModelShape& shape);

// Leaves to each layer what its kind says.
void KeepOneMixer(const std::vector<BlockKind>& blocks, ModelShape& shape);

// Refuse variations that the layer does not compute, and a model without a state: methods would take all its
// layers for ones that attend.
void CheckHfBlocks(const HfKeys& keys, const KeyReader& read, ModelConfig& c);
void CheckGgufBlocks(const KeyReader& read, const std::string& prefix, const ModelShape& shape);

}  // namespace coppice
