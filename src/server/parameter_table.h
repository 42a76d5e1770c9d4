// The parts of the table of fields, and what their readers share.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "server/parameters.h"

namespace coppice {

std::span<const Field> InputFields();     // prompts, messages, tools, texts
std::span<const Field> ThinkingFields();  // whether and how long a model thinks
std::span<const Field> SamplingFields();  // how tokens are drawn, and what ends an answer

// Throw HttpError, naming the field.
int32_t TokenId(const nlohmann::json& value, const std::string& name);
std::vector<int32_t> TokenIds(const nlohmann::json& value, const std::string& name);

// Whether a row's values matter (Field::matters).
constexpr Field Where(bool (*matters)(const Parameters&), Field field) {
  field.matters = matters;
  return field;
}

}  // namespace coppice
