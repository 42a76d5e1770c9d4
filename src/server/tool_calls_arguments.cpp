// The parser's part for calls that are found: whole, or with arguments that are being written.
#include <utility>

#include "engine/marks.h"
#include "server/tool_calls.h"

namespace coppice {

void ToolCallParser::NoteCalls(int count) {
  mark_.clear();
  name_.clear();
  name_mark_.clear();
  head_ = {};
  end_ = {};
  at_start_ = false;
  after_call_ = true;
  searched_ = 0;
  tries_ = 0;
  calls_ += count;
}

void ToolCallParser::EmitCalls(std::vector<ToolCall> calls, std::vector<AnswerPart>& parts) {
  NoteCalls(static_cast<int>(calls.size()));
  for (ToolCall& call : calls) AddCall(std::move(call), parts);
}

void ToolCallParser::BeginCall(std::string name, size_t skip, bool is_member,
                               std::vector<AnswerPart>& parts) {
  parts.push_back({AnswerPart::Kind::kCall, std::move(name)});
  NoteCalls(1);
  held_.erase(0, skip);
  in_arguments_ = true;
  leaves_object_ = is_member;
}

bool ToolCallParser::TakeArguments(bool at_end, std::vector<AnswerPart>& parts) {
  const std::optional<size_t> end = end_.Find(held_);
  const size_t size = end.value_or(held_.size());
  AddPiece(AnswerPart::Kind::kArguments, std::string_view(held_).substr(0, size), parts);
  held_.erase(0, size);
  end_.at = 0;
  if (!end && !at_end) return false;
  parts.push_back({end ? AnswerPart::Kind::kCallEnd : AnswerPart::Kind::kCallCut});
  end_ = {};
  in_arguments_ = false;
  return true;
}

// What follows the arguments in their object says nothing more about the call. Models forget its end.
bool ToolCallParser::TakeRestOfObject(bool at_end) {
  if (end_.depth == 0) {
    const size_t first = held_.find_first_not_of(kBlanks);
    if (first == held_.npos && !at_end) return false;
    const bool goes_on = first != held_.npos && held_[first] == ',';
    const size_t next = goes_on ? held_.find_first_not_of(kBlanks, first + 1) : held_.npos;
    if (goes_on && next == held_.npos && !at_end) return false;
    if (next == held_.npos || held_[next] != '"') {
      if (first != held_.npos && held_[first] == '}') held_.erase(0, first + 1);
      leaves_object_ = false;
      return true;
    }
    end_.depth = 1;  // as behind the object's {
  }
  const std::optional<size_t> end = end_.Find(held_);
  held_.erase(0, end.value_or(held_.size()));
  end_.at = 0;
  if (!end && !at_end) return false;
  end_ = {};
  leaves_object_ = false;
  return true;
}

}  // namespace coppice
