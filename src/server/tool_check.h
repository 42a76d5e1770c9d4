// Whether the arguments of a call fit the parameters of its function.
#pragma once

#include <nlohmann/json.hpp>

#include "server/tool_calls.h"

namespace coppice {

inline constexpr size_t kMaxCallErrors = 32;  // that a reply lists

// Checks the calls of one reply. A reply is written on the thread that samples, so all its checks together
// have kMostSeconds of its CPU time; calls that come later are listed as not checked.
class CallChecks {
 public:
  static constexpr double kMostSeconds = 0.25;

  // Where the call's arguments do not fit, as [{"tool_call": number, "name", "path", "message"}, ...]; empty
  // if they fit. `path` is a JSON pointer into the arguments. `tools`: the request's definitions. What cannot
  // be checked is listed too.
  nlohmann::ordered_json Errors(const nlohmann::ordered_json& tools, const ToolCall& call, size_t number);

 private:
  double spent_ = 0;
};

}  // namespace coppice
