// The parser's part for calls that are no JSON objects between marks (call_forms.h).
#include <algorithm>
#include <utility>

#include "engine/marks.h"
#include "server/call_forms.h"
#include "server/tool_calls.h"

namespace coppice {

namespace {

constexpr std::string_view kXmlBegin = "<tool_call>";
constexpr std::string_view kXmlEnd = "</tool_call>";

}  // namespace

// What may stand behind a call whose end was found without it.
bool ToolCallParser::StripLeftOver(bool at_end) {
  if (!after_call_ || (format_ != ToolFormat::kXml && !CallsAreMessages(format_))) return true;
  const size_t first = held_.find_first_not_of(kBlanks);
  if (first == held_.npos) return at_end;
  const std::string_view rest = std::string_view(held_).substr(first);
  for (const std::string_view mark : {kXmlEnd, std::string_view("<|call|>"), std::string_view("<|end|>"),
                                      std::string_view("<|eom|>"), std::string_view("<|eot|>")}) {
    if (rest.starts_with(mark)) {
      held_.erase(0, first + mark.size());
      return StripLeftOver(at_end);
    }
    if (!at_end && IsPartOf(rest, mark)) return false;
  }
  return true;
}

// The end mark of an XML function may also stand in a value: behind the right one the outer tag ends, another
// function begins, or nothing follows.
std::optional<bool> ToolCallParser::MayEndBlock(size_t end, bool at_end) const {
  if (format_ != ToolFormat::kXml) return true;
  const size_t first = held_.find_first_not_of(kBlanks, end);
  if (first == held_.npos) return at_end ? std::optional(true) : std::nullopt;
  const std::string_view rest = std::string_view(held_).substr(first);
  for (const std::string_view mark : {kXmlEnd, kXmlBegin, std::string_view("<function=")}) {
    if (rest.starts_with(mark)) return true;
    if (IsPartOf(rest, mark)) return at_end ? std::optional(false) : std::nullopt;
  }
  return false;
}

bool ToolCallParser::TakeBlockMark(bool at_end, std::vector<AnswerPart>& parts) {
  const std::string_view mark = ToolMarks(format_).front();
  const size_t first = std::min(held_.find_first_not_of(kBlanks), held_.size());
  const std::string_view rest = std::string_view(held_).substr(first);
  if (!at_end && (rest.empty() || IsPartOf(rest, mark))) return false;
  const size_t size = rest.starts_with(mark) ? first + mark.size() : 0;
  if (size == 0) {
    GiveUp(0, parts);
    return true;
  }
  mark_ += held_.substr(0, size);
  held_.erase(0, size);
  return true;
}

bool ToolCallParser::TakeBlock(bool at_end, std::vector<AnswerPart>& parts) {
  constexpr int kMostTries = 32;  // each reads the block
  const auto give_up = [&] {
    GiveUp(std::min<size_t>(held_.size(), format_ == ToolFormat::kXml ? 1 : 0), parts);
    return true;
  };
  if (!MayBeCalls(format_, held_, functions_)) return give_up();
  const std::string_view end_mark = CallsEnd(format_);
  while (tries_ < kMostTries) {
    const size_t at = held_.find(end_mark, searched_);
    if (at == held_.npos && !at_end) {
      searched_ = std::max(searched_, held_.size() - std::min(held_.size(), end_mark.size() - 1));
      return false;
    }
    // A list of Python calls, or Gemma's call, may lack its end mark.
    const bool may_lack_end = format_ == ToolFormat::kPython || format_ == ToolFormat::kGemma4;
    if (at == held_.npos && !may_lack_end) break;
    const size_t end = at == held_.npos ? held_.size() : at + end_mark.size();
    const std::optional<bool> may_end = MayEndBlock(end, at_end);
    if (!may_end) {
      searched_ = at;
      return false;
    }
    const size_t size = format_ == ToolFormat::kXml ? end : std::min(at, held_.size());
    std::vector<ToolCall> calls;
    if (*may_end) calls = CallsOf(format_, std::string_view(held_).substr(0, size), functions_);
    if (!calls.empty()) {
      held_.erase(0, end);
      EmitCalls(std::move(calls), parts);
      in_calls_ = format_ == ToolFormat::kXml && mark_.empty();
      return true;
    }
    if (at == held_.npos) break;
    if (*may_end) ++tries_;
    searched_ = at + 1;
  }
  // Prose behind a function without its outer tag.
  size_t at = at_end && format_ == ToolFormat::kXml ? held_.find(end_mark) : held_.npos;
  for (; at != held_.npos && tries_ < kMostTries; at = held_.find(end_mark, at + 1), ++tries_) {
    std::vector<ToolCall> calls =
        CallsOf(format_, std::string_view(held_).substr(0, at + end_mark.size()), functions_);
    if (calls.empty()) continue;
    held_.erase(0, at + end_mark.size());
    EmitCalls(std::move(calls), parts);
    return true;
  }
  return give_up();
}

}  // namespace coppice
