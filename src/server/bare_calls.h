// Finds calls of functions in an answer that is nothing but calls, in forms that its template does not teach.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "server/call_scan.h"
#include "server/tool_calls.h"

namespace coppice {

// The names of the functions of a request's `tools`, as CheckTools() takes them.
std::vector<std::string> ToolNames(const nlohmann::ordered_json& tools);

// Takes an answer's text piece by piece. Small models write calls as a bare object, in a fence, or in tags
// that their template does not use. The whole answer must be such calls: {"name": N, "arguments": A} and its
// kin, lists of them, each perhaps in ``` or <tools>, where N is a function of the request and A an object.
// Holds text back only while it can still become that; the rest goes to ToolCallParser. In Llama's form,
// whose calls have no mark, an object goes there as soon as it is a call.
class AnswerParser {
 public:
  // `tools`: the request's definitions, which must outlive this object. `bare`: false if the answer may be
  // JSON that the request asked for.
  AnswerParser(ToolFormat format, const nlohmann::ordered_json& tools, bool bare);

  std::vector<AnswerPart> Push(std::string_view text);
  // The answer has ended.
  std::vector<AnswerPart> Flush();
  size_t held_bytes() const { return held_.size() + inner_.held_bytes(); }

 private:
  // The calls that the held text is; empty if it is anything else.
  std::vector<ToolCall> Calls() const;
  bool AddCalls(const nlohmann::ordered_json& value, std::vector<ToolCall>& calls) const;
  bool BeginsOwnCall();
  bool EchoesDefinition(const std::string& name, const nlohmann::ordered_json& arguments) const;

  const ToolFormat format_;
  const CallableFunctions functions_;
  bool undecided_;
  std::string held_;
  CallScan scan_;
  CallHead head_;  // of the object that held_ begins with, in Llama's form
  ToolCallParser inner_;
};

}  // namespace coppice
