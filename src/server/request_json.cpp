#include "server/request_json.h"

#include <utility>

#include "base/error.h"
#include "formats/json.h"
#include "server/errors.h"
#include "server/parameters.h"

namespace coppice {

using nlohmann::ordered_json;

ordered_json ParseRequestObject(std::string_view body) {
  ordered_json object;
  try {
    object = ParseOrderedJson(body, "request", kMaxRequestValues);
  } catch (const Error& error) {
    throw HttpError({400, "invalid_request_error", error.what()});
  }
  if (!object.is_object())
    throw HttpError({400, "invalid_request_error", "the request's body is not a JSON object"});
  return object;
}

std::string TextMember(const ordered_json& value, const char* name) {
  if (!value.is_object() || !value.contains(name) || !value[name].is_string()) return "";
  return value[name];
}

ordered_json Member(const ordered_json& value, const char* name) {
  return value.is_object() && value.contains(name) ? value[name] : ordered_json();
}

ordered_json TakeMember(ordered_json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return nullptr;
  ordered_json value = std::move(*found);
  object.erase(found);
  return value;
}

}  // namespace coppice
