// What a model's description says of layers that carry a state instead of keys.
#pragma once

#include <string>

#include "formats/gguf.h"
#include "model/architectures.h"
#include "model/config.h"
#include "model/config_keys.h"

namespace coppice {

// Turn the layers that ReadShape has set into those with a state where the file says so, after everything
// else was read. They throw Error, naming the key, the layer and both values, for sizes that do not fit each
// other, and for variations that the layer does not compute.
void ReadGgufMixers(const GgufMetadata& metadata, const KeyReader& read, const std::string& prefix,
                    const Architecture& row, ModelConfig& c);
void ReadHfMixers(const HfKeys& keys, const KeyReader& read, const Architecture& row, ModelConfig& c);

}  // namespace coppice
