// What descriptions of Gemma 4 say and no others: layers with a window have heads of another size, the last
// layers attend the keys and values of earlier ones, and layers have embeddings of their own.
#pragma once

#include <string>

#include "formats/gguf.h"
#include "model/config.h"
#include "model/config_keys.h"

namespace coppice {

// Set the heads' sizes by layer, once the windows are known and before the ropes are.
void ReadGgufWindowHeads(const KeyReader& read, const std::string& prefix, ModelConfig& c);
void ReadHfGlobalHeads(const HfKeys& keys, const KeyReader& read, ModelConfig& c);

// Set everything else. The layers that attend others' keys become the tail.
void ReadGgufGemma4(const KeyReader& read, const std::string& prefix, ModelConfig& c);
void ReadHfGemma4(const HfKeys& keys, const KeyReader& read, ModelConfig& c);

}  // namespace coppice
