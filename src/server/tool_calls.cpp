#include "server/tool_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/fnv.h"
#include "engine/marks.h"
#include "formats/json.h"
#include "server/errors.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;

constexpr std::string_view kHermesEnd = "</tool_call>";
constexpr std::string_view kMistralArguments = "[ARGS]";
constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kAtemRecipient = "to=";

std::string_view MarkOf(ToolFormat format) {
  switch (format) {
    case ToolFormat::kLlama:
      return "<|python_tag|>";
    case ToolFormat::kMistral:
      return "[TOOL_CALLS]";
    case ToolFormat::kChannels:
      return "<|channel|>";
    case ToolFormat::kPython:
      return "<|tool_call_start|>";
    case ToolFormat::kGemma4:
      return "<|tool_call>";
    case ToolFormat::kInvokes:
      return "<minimax:tool_call>";
    case ToolFormat::kAtem:
      return "<atem:function_calls>";
    default:
      return "<tool_call>";
  }
}

// What may stand between calls.
const char* SeparatorsOf(ToolFormat format) {
  return format == ToolFormat::kLlama ? " \t\r\n;," : format == ToolFormat::kMistral ? " \t\r\n[]," : kBlanks;
}

// The texts that begin calls. Those after the first are part of what the form's parser reads.
std::vector<std::string_view> BeginMarks(ToolFormat format) {
  if (format == ToolFormat::kXml) return {MarkOf(format), "<function="};
  if (format == ToolFormat::kChannels) return {"<|start|>assistant", "<|channel|>", "to=functions."};
  if (format == ToolFormat::kAtem) return {MarkOf(format), "<|start|>assistant", kAtemRecipient};
  return {MarkOf(format)};
}

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.';
}

}  // namespace

ToolFormat ToolFormatOf(std::string_view chat_template) {
  const auto has = [&](std::string_view text) { return chat_template.find(text) != chat_template.npos; };
  if (has("<|tool_call>call:")) return ToolFormat::kGemma4;
  if (has("<atem:function_calls>")) return ToolFormat::kAtem;
  if (has("<minimax:tool_call>")) return ToolFormat::kInvokes;
  if (has("to=functions.") || (has("\"functions.\"") && has("<|channel|>commentary")))
    return ToolFormat::kChannels;
  if (has("<|tool_call_start|>") || has("<|tool_list_start|>") || has("List of tools: ["))
    return ToolFormat::kPython;
  if (has("<tool_call>") && has("<arg_key>")) return ToolFormat::kArgKeys;
  if (has("<tool_call>")) return has("<function=") ? ToolFormat::kXml : ToolFormat::kHermes;
  if (has("[TOOL_CALLS]")) return ToolFormat::kMistral;
  return has("<|python_tag|>") || has("\"parameters\": dictionary") ? ToolFormat::kLlama
                                                                    : ToolFormat::kHermes;
}

std::vector<std::string_view> ToolMarks(ToolFormat format) {
  switch (format) {
    case ToolFormat::kHermes:
    case ToolFormat::kXml:
      return {MarkOf(format), kHermesEnd};
    case ToolFormat::kMistral:
      return {MarkOf(format), kMistralArguments};
    case ToolFormat::kChannels:
      return {MarkOf(format), "<|start|>", "<|message|>", "<|constrain|>", "<|call|>", "<|end|>"};
    case ToolFormat::kGemma4:
      return {MarkOf(format), "<tool_call|>", "<|\"|>"};
    case ToolFormat::kPython:
      return {MarkOf(format), "<|tool_call_end|>"};
    case ToolFormat::kArgKeys:
      return {MarkOf(format), kHermesEnd, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"};
    case ToolFormat::kInvokes:
      return {MarkOf(format), "</minimax:tool_call>"};
    case ToolFormat::kAtem:
      return {MarkOf(format),    "</atem:function_calls>",
              "<atem:invoke",    "</atem:invoke>",
              "<atem:parameter", "</atem:parameter>",
              "<|start|>",       kMessage,
              "<|eom|>",         "<|eot|>"};
    default:
      return {MarkOf(format)};
  }
}

std::string ToolCallId(ToolFormat format, std::string_view answer, size_t number) {
  const std::string id = fmt::format("{:016x}", Fnv1a(std::to_string(number), Fnv1a(answer)));
  return format == ToolFormat::kMistral ? id.substr(0, 9) : "call_" + id;
}

std::vector<AnswerPart> ToolCallParser::Push(std::string_view text) {
  held_ += text;
  return Parse(false);
}

std::vector<AnswerPart> ToolCallParser::Flush() { return Parse(true); }

std::vector<AnswerPart> ToolCallParser::Parse(bool at_end) {
  std::vector<AnswerPart> parts;
  while (in_arguments_    ? TakeArguments(at_end, parts)
         : leaves_object_ ? TakeRestOfObject(at_end)
         : in_calls_      ? TakeCall(at_end, parts)
                          : TakeText(at_end, parts)) {
  }
  return parts;
}

void ToolCallParser::Emit(std::string text, std::vector<AnswerPart>& parts) {
  if (after_call_) text.erase(0, std::min(text.find_first_not_of(kBlanks), text.size()));
  if (text.empty()) return;
  at_start_ = after_call_ = false;
  AddPiece(AnswerPart::Kind::kText, text, parts);
}

// What looked like a call is text, with what introduced it. Behind a call that is nothing.
void ToolCallParser::GiveUp(size_t bytes, std::vector<AnswerPart>& parts) {
  Emit(std::exchange(mark_, {}) + std::exchange(name_mark_, {}) + held_.substr(0, bytes), parts);
  name_.clear();
  held_.erase(0, bytes);
  head_ = {};
  in_calls_ = false;
}

bool ToolCallParser::TakeText(bool at_end, std::vector<AnswerPart>& parts) {
  if (format_ == ToolFormat::kLlama && at_start_) {
    const size_t first = held_.find_first_not_of(kBlanks);
    if (first == held_.npos && !at_end) return false;
    if (first != held_.npos && held_[first] == '{') {
      mark_ = held_.substr(0, first);
      held_.erase(0, first);
      end_ = {};
      return in_calls_ = true;
    }
  }
  if (!StripLeftOver(at_end)) return false;
  std::string_view mark;
  size_t at = held_.npos;
  size_t begun = 0;
  for (const std::string_view one : BeginMarks(format_)) {
    if (one == kAtemRecipient) {  // at the answer's start; later headers begin with <|start|>
      const size_t first = std::min(held_.find_first_not_of(kBlanks), held_.size());
      const std::string_view rest = std::string_view(held_).substr(first);
      if (at_start_ && rest.starts_with(one) && first < at) {
        at = first;
        mark = one;
      }
      if (at_start_ && IsPartOf(rest, one)) begun = std::max(begun, rest.size());
      continue;
    }
    if (const size_t found = held_.find(one); found < at) {
      at = found;
      mark = one;
    }
    begun = std::max(begun, BegunMark(held_, one));
  }
  size_t text = std::min(at, held_.size());
  if (at == held_.npos && !at_end) text -= begun;
  // White space in front of a call belongs to it.
  size_t said = at == held_.npos && at_end && calls_ == 0
                    ? text
                    : held_.find_last_not_of(kBlanks, text - 1) + 1;  // npos + 1 is 0
  if (text == 0) said = 0;
  Emit(held_.substr(0, said), parts);
  if (at == held_.npos) {
    held_.erase(0, at_end ? held_.size() : said);
    return false;
  }
  const bool is_read = format_ == ToolFormat::kChannels || mark != MarkOf(format_);
  const size_t begin = at + (is_read ? 0 : mark.size());
  mark_ = held_.substr(said, begin - said);
  held_.erase(0, begin);
  end_ = {};
  searched_ = 0;
  tries_ = 0;
  return in_calls_ = true;
}

ToolCallParser::Next ToolCallParser::TakeSeparators(bool at_end) {
  const std::string_view begin = MarkOf(format_);
  const bool has_end = format_ == ToolFormat::kHermes || format_ == ToolFormat::kXml;
  const std::string_view end = has_end ? kHermesEnd : begin;
  while (!held_.empty()) {
    if (!at_end && (IsPartOf(held_, begin) || IsPartOf(held_, end))) return Next::kUnknown;
    size_t size =
        std::string_view(SeparatorsOf(format_)).find(held_.front()) == std::string_view::npos ? 0 : 1;
    if (held_.starts_with(begin)) size = begin.size();
    const bool is_end = end != begin && held_.starts_with(end);
    if (is_end) size = end.size();
    if (size == 0) return Next::kCall;
    if (!after_call_) mark_ += held_.substr(0, size);
    held_.erase(0, size);
    if (is_end) return Next::kText;
  }
  return at_end ? Next::kText : Next::kUnknown;
}

std::optional<std::string> ToolCallParser::TakeName(bool at_end) {
  const auto last = std::ranges::find_if_not(held_, IsNameCharacter);
  const auto size = static_cast<size_t>(last - held_.begin());
  if (size == 0) return std::string();
  const std::string_view rest = std::string_view(held_).substr(size);
  if (!at_end && IsPartOf(rest, kMistralArguments)) return std::nullopt;
  const bool named = rest.starts_with(kMistralArguments);
  if (!named && !rest.starts_with('{')) return std::string();
  std::string name = held_.substr(0, size);
  name_mark_ = held_.substr(0, size + (named ? kMistralArguments.size() : 0));
  held_.erase(0, name_mark_.size());
  return name;
}

bool ToolCallParser::TakeCall(bool at_end, std::vector<AnswerPart>& parts) {
  if (CallsAreMessages(format_) && !mark_.ends_with(MarkOf(format_)))
    return mark_.ends_with(kMessage) ? TakeBlockMark(at_end, parts) : TakeMessage(at_end, parts);
  const bool is_object = format_ == ToolFormat::kHermes || format_ == ToolFormat::kLlama ||
                         format_ == ToolFormat::kMistral || format_ == ToolFormat::kXml;
  if (!is_object) return TakeBlock(at_end, parts);
  if (end_.at == 0 && name_.empty()) {
    const Next next = TakeSeparators(at_end);
    if (next == Next::kUnknown) return false;
    if (next == Next::kText) {
      GiveUp(0, parts);
      return true;
    }
    if (format_ == ToolFormat::kMistral) {
      const std::optional<std::string> name = TakeName(at_end);
      if (!name) return false;
      name_ = *name;
    }
  }
  if (held_.empty() && !at_end) return false;
  if (format_ == ToolFormat::kXml && held_.starts_with('<')) return TakeBlock(at_end, parts);
  if (held_.empty() || held_.front() != '{') {
    GiveUp(0, parts);
    return true;
  }
  const bool is_named = !name_.empty();
  if (is_named && functions_.Has(name_)) {
    BeginCall(std::move(name_), 0, false, parts);
    return true;
  }
  const CallHead::Found found = is_named ? CallHead::Found::kWhole : head_.Find(held_, functions_);
  if (found == CallHead::Found::kArguments) {
    BeginCall(head_.name(), head_.arguments(), true, parts);
    return true;
  }
  const std::optional<size_t> end =
      found == CallHead::Found::kWhole ? end_.Find(held_) : std::optional<size_t>();
  if (!end) {
    if (at_end) GiveUp(held_.size(), parts);
    return false;
  }
  end_ = {};
  std::optional<ToolCall> call;
  if (!is_named) call = CallOf(held_.substr(0, *end));
  if (!call || !functions_.Has(call->name)) {
    GiveUp(*end, parts);
    return true;
  }
  held_.erase(0, *end);
  EmitCalls({*std::move(call)}, parts);
  return true;
}

// held_ begins with a header, which ends with <|message|>.
bool ToolCallParser::TakeMessage(bool at_end, std::vector<AnswerPart>& parts) {
  const std::string_view recipient = format_ == ToolFormat::kAtem ? kAtemRecipient : "to=functions.";
  constexpr size_t kMostHeader = 256;
  const size_t message = held_.find(kMessage);
  const std::string_view header = std::string_view(held_).substr(0, message);
  const bool too_long =
      message == held_.npos ? held_.size() >= kMostHeader + kMessage.size() : message > kMostHeader;
  if (too_long || header.find('\n') != header.npos || (message == held_.npos && at_end)) {
    GiveUp(1, parts);
    return true;
  }
  if (message == held_.npos) return false;
  const size_t to = header.find(recipient);
  std::string name;
  if (to != header.npos) {
    const std::string_view rest = header.substr(to + recipient.size());
    name = rest.substr(0, rest.find_first_of(" <\t"));
  }
  // Behind a message for the reader comes its text.
  if (name.empty() || !functions_.Has(name)) {
    GiveUp(message + kMessage.size(), parts);
    return true;
  }
  if (format_ == ToolFormat::kAtem) {
    mark_ += held_.substr(0, message + kMessage.size());
    held_.erase(0, message + kMessage.size());
    return true;
  }
  const size_t begin = held_.find_first_not_of(kBlanks, message + kMessage.size());
  if (begin == held_.npos && !at_end) return false;
  if (begin == held_.npos || held_[begin] != '{') {
    GiveUp(message + kMessage.size(), parts);
    return true;
  }
  BeginCall(std::move(name), begin, false, parts);
  in_calls_ = false;
  return true;
}

}  // namespace coppice
