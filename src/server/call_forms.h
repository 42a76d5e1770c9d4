// Calls that are no JSON object between marks: Qwen3-Coder's XML, MiniMax's and Muse Glimmer's, LFM2's list
// of Python calls, Gemma 4's, and GLM's pairs of tags.
#pragma once

#include <string_view>
#include <vector>

#include "server/tool_calls.h"

namespace coppice {

// The tags of a form that is written as XML: <function=N><parameter=K>V</parameter></function>. What begins a
// function or a parameter ends with a name and ">".
struct XmlTags {
  std::string_view function, function_end, parameter, parameter_end;
  bool breaks = false;  // a value has a line break on either side
};
// With kXml, kInvokes and kAtem.
const XmlTags& XmlTagsOf(ToolFormat format);

// Whether a text that grows may become calls in this form. It begins behind the mark that begins calls; with
// kXml it begins with <function=.
bool MayBeCalls(ToolFormat format, std::string_view text, const CallableFunctions& functions);
// The text behind which calls in this form end.
std::string_view CallsEnd(ToolFormat format);
// The calls that the whole text is, up to its end mark; empty if it is anything else, or calls another
// function.
std::vector<ToolCall> CallsOf(ToolFormat format, std::string_view text, const CallableFunctions& functions);

}  // namespace coppice
