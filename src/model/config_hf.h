// A config.json as transformers reads it: with its classes' values for what is missing.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>

#include "model/config.h"

namespace coppice {

// ConfigFromHf, which also collects the keys that it asks for.
ModelConfig ReadHfConfig(const nlohmann::json& config, const std::string& folder,
                         std::set<std::string>* asked);

// The values that transformers' classes have for missing keys, by model_type (tools/make_hf_defaults.py).
const nlohmann::json& HfDefaults();

}  // namespace coppice
