// Whether the arguments of a call fit the parameters of its function.
#pragma once

#include <nlohmann/json.hpp>

#include "server/tool_calls.h"

namespace coppice {

inline constexpr size_t kMaxCallErrors = 32;  // that a reply lists

// Where they do not, as [{"tool_call": number, "name", "path", "message"}, ...]; empty if they fit. `path` is
// a JSON pointer into the arguments. `tools`: the request's definitions. What cannot be checked is listed
// too.
nlohmann::ordered_json CallErrors(const nlohmann::ordered_json& tools, const ToolCall& call, size_t number);

}  // namespace coppice
