// Small readings of a request's JSON, for the forms that are turned into a chat's.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

// A request of another form as /v1/chat/completions takes it, and the names of what was left out of it.
struct ChatForm {
  std::string body;
  std::vector<std::string> ignored;
};

// A request's body, an object, with its keys in their order. Throws HttpError.
nlohmann::ordered_json ParseRequestObject(std::string_view body);

// The member of an object if it is a text; "" otherwise.
std::string TextMember(const nlohmann::ordered_json& value, const char* name);

// The member of an object; null if there is none, or if it is no object.
nlohmann::ordered_json Member(const nlohmann::ordered_json& value, const char* name);

// Removes the member and returns it; null if there is none.
nlohmann::ordered_json TakeMember(nlohmann::ordered_json& object, const char* name);

}  // namespace coppice
