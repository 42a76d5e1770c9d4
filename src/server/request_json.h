// Small readings of a request's JSON, for the forms that are turned into a chat's.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

// A function that a client sent within a namespace.
struct FunctionName {
  std::string space;
  std::string name;
};

// A request of another form as /v1/chat/completions takes it.
struct ChatForm {
  std::string body;
  std::vector<std::string> ignored = {};               // names of what was left out
  std::map<std::string, FunctionName> functions = {};  // those of namespaces, by the names in `body`
  bool returns_thinking = false;  // the client wants what it needs to send the thinking back
  std::map<std::string, std::string> sent_names = {};  // the client's names of fields, by those in `body`
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
