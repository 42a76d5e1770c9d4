// Calls that are no JSON object between marks: Qwen3-Coder's XML, LFM2's list of Python calls, Gemma 4's.
#pragma once

#include <string_view>
#include <vector>

#include "server/tool_calls.h"

namespace coppice {

// Whether a text that grows may become calls in this form. It begins behind the mark that begins calls; with
// kXml it begins with <function=.
bool MayBeCalls(ToolFormat format, std::string_view text, const CallableFunctions& functions);
// The text behind which calls in this form end.
std::string_view CallsEnd(ToolFormat format);
// The calls that the whole text is, up to its end mark; empty if it is anything else, or calls another
// function.
std::vector<ToolCall> CallsOf(ToolFormat format, std::string_view text, const CallableFunctions& functions);

}  // namespace coppice
