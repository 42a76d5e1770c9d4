// A call that is a JSON object, {"name": N, "arguments": A}: whole, or as it grows.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "server/tool_parts.h"

namespace coppice {

// Finds the end of the JSON object at the front of a text that grows.
struct ObjectEnd {
  size_t at = 0;
  int depth = 0;
  bool in_string = false;
  bool escaped = false;

  // In bytes; nullopt: the text ends before the object does.
  std::optional<size_t> Find(std::string_view text);
};

// Reads the beginning of an object that grows, up to where its arguments begin. A call whose name and
// arguments have begun is one, whatever follows: so its arguments can be told while they are written.
class CallHead {
 public:
  enum class Found {
    kMore,       // more text is needed
    kArguments,  // the name is a function's, and the arguments begin at arguments()
    kWhole,      // only the whole object tells whether it is a call: another order, escapes, no such function
  };
  // `text`: the object so far. It begins with {, and with what the last call got.
  Found Find(std::string_view text, const CallableFunctions& functions);
  const std::string& name() const { return name_; }
  size_t arguments() const { return at_; }

 private:
  void Take(std::string_view text, const CallableFunctions& functions);
  void EndString(std::string_view string, const CallableFunctions& functions);

  Found found_ = Found::kMore;
  size_t at_ = 0;
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
  bool has_escapes_ = false;
  size_t string_ = 0;  // where it begins
  bool is_value_ = false;
  std::string key_;
  std::string name_;
};

// The call that the object is, or nullopt.
std::optional<ToolCall> CallOf(const std::string& object);

// The object that a call's arguments are. Of arguments that were cut, or are no JSON, the members that came
// whole before the fault.
nlohmann::ordered_json ArgumentsObject(const std::string& arguments);

}  // namespace coppice
