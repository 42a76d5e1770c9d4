#include "text/tokenizer/text_json.h"

#include "base/error.h"
#include "base/limits.h"

namespace coppice {

using nlohmann::json;

const json* FindField(const json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(std::string(key));
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string StringField(const json& object, std::string_view key, const std::string& source) {
  const json* field = FindField(object, key);
  if (field == nullptr || !field->is_string())
    throw Error("[tokenizer] {}: '{}' must be a string", source, key);
  return field->get<std::string>();
}

std::string StringField(const json& object, std::string_view key, const std::string& source,
                        const std::string& fallback) {
  return FindField(object, key) == nullptr ? fallback : StringField(object, key, source);
}

bool BoolField(const json& object, std::string_view key, const std::string& source, bool fallback) {
  const json* field = FindField(object, key);
  if (field == nullptr) return fallback;
  if (!field->is_boolean()) throw Error("[tokenizer] {}: '{}' must be true or false", source, key);
  return field->get<bool>();
}

const json& ArrayField(const json& object, std::string_view key, const std::string& source) {
  const json* field = FindField(object, key);
  if (field == nullptr || !field->is_array())
    throw Error("[tokenizer] {}: '{}' must be an array", source, key);
  return *field;
}

int32_t TokenIdFrom(const json& value, std::string_view what, const std::string& source) {
  if (!value.is_number_integer()) throw Error("[tokenizer] {}: {} must be an integer", source, what);
  const bool fits = value.is_number_unsigned()
                        ? value.get<uint64_t>() < static_cast<uint64_t>(limits::kMaxVocab)
                        : value.get<int64_t>() >= 0 && value.get<int64_t>() < limits::kMaxVocab;
  if (!fits) {
    throw Error("[tokenizer] {}: {} is {}, expected 0 to {}", source, what, value.dump(),
                limits::kMaxVocab - 1);
  }
  return value.get<int32_t>();
}

std::string ReplaceAll(std::string_view text, std::string_view pattern, std::string_view content) {
  std::string out;
  out.reserve(text.size());
  size_t at = 0;
  for (size_t found = text.find(pattern); found != std::string_view::npos; found = text.find(pattern, at)) {
    out.append(text.substr(at, found - at)).append(content);
    at = found + pattern.size();
  }
  return out.append(text.substr(at));
}

}  // namespace coppice
