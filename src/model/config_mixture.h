// What a model's description says of mixtures of experts.
#pragma once

#include <string>

#include "formats/gguf.h"
#include "model/architectures.h"
#include "model/config.h"
#include "model/config_keys.h"

namespace coppice {

// The key of the FFN's width for ReadShape: that of experts where a file has no other.
std::string GgufFfnKey(const GgufMetadata& metadata, const std::string& prefix, const MixtureTraits& traits);

// These turn the FFNs that ReadShape has set into mixtures where the file says so, and set the router. They
// throw Error, naming the key, the layer and both values, for counts and widths that do not fit each other,
// and for variations that the layer does not compute.
void ReadGgufMixture(const GgufMetadata& metadata, const KeyReader& read, const std::string& prefix,
                     const MixtureTraits& traits, ModelConfig& c);
void ReadHfMixture(const HfKeys& keys, const KeyReader& read, const HfMixture& names,
                   const MixtureTraits& traits, ModelConfig& c);

// transformers takes either name for the number of experts: gives a description with one of them both.
void RenameExperts(nlohmann::json& json);

}  // namespace coppice
