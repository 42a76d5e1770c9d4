#include "server/call_scan.h"

#include <algorithm>
#include <array>
#include <utility>

namespace coppice {

namespace {

constexpr size_t kMaxMark = 160;    // bytes of a fence's first line, or of a tag
constexpr size_t kMaxKept = 160;    // of a string; names have at most 128
constexpr size_t kMaxNesting = 64;  // as limits::kMaxJsonDepth
constexpr size_t kMaxValues = 256;  // as kMaxTools
constexpr std::string_view kFence = "```";
constexpr std::string_view kFunction = "<function=";

// Qwen2.5-Coder writes <tools>; the others are those that llama.cpp takes for Hermes' form, and plurals.
constexpr std::array<std::string_view, 14> kTags{
    "<tool_call>",    "<tool_calls>",     "<tools>",    "<tool>",     "<function_call>", "<function>",
    "<functioncall>", "<function_calls>", "<toolcall>", "<response>", "<json>",          "<JSON>",
    "<xml>",          "<|tool_call|>"};
constexpr std::array<std::string_view, 9> kFenceWords{
    "", "json", "JSON", "jsonc", "xml", "tool", "tool_call", "tool_calls", "function_call"};

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

template <typename List>
bool Has(const List& list, std::string_view text) {
  return std::ranges::find(list, text) != std::end(list);
}

template <typename List>
bool BeginsOne(const List& list, std::string_view text) {
  return std::ranges::any_of(list, [&](std::string_view whole) { return whole.starts_with(text); });
}

std::string EndOf(std::string_view tag) {
  if (tag.starts_with(kFunction)) return "</function>";
  if (tag.starts_with("<|")) return "<|/" + std::string(tag.substr(2));
  return "</" + std::string(tag.substr(1));
}

}  // namespace

bool IsNameKey(std::string_view key) {
  return key == "name" || key == "function" || key == "tool" || key == "tool_name" || key == "function_name";
}

bool IsArgumentsKey(std::string_view key) {
  return key == "arguments" || key == "parameters" || key == "args" || key == "input";
}

bool IsWrapperKey(std::string_view key) {
  return key == "tool_calls" || key == "tool_call" || key == "function_call" || key == "function" ||
         key == "tools";
}

bool CallScan::Push(char c) {
  ++at_;
  switch (state_) {
    case State::kBetween:
      return PushBetween(c);
    case State::kMark:
      return PushMark(c);
    case State::kValue:
      return PushValue(c);
    case State::kKey:
      return PushKey(c);
    case State::kColon:
      if (c == ':') state_ = State::kValue;
      return c == ':' || IsSpace(c);
    case State::kAfter:
      return PushAfter(c);
    case State::kString:
      return PushString(c);
    case State::kLiteral:
      if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '+' || c == 'E')
        return true;
      state_ = State::kAfter;
      return PushAfter(c);
  }
  return false;
}

bool CallScan::PushBetween(char c) {
  if (IsSpace(c)) return true;
  // A comma or a semicolon may stand between two calls.
  if (c == ',' || c == ';') {
    if (values_.empty() || after_comma_) return false;
    return after_comma_ = true;
  }
  if (c == '{' || c == '[') {
    if (c == '[' && !function_.empty()) return false;
    if (values_.size() >= kMaxValues) return false;
    after_comma_ = false;
    values_.push_back({at_ - 1, 0, function_});
    return Open(c);
  }
  if (c != '<' && c != '`') return false;
  mark_ = c;
  state_ = State::kMark;
  return true;
}

bool CallScan::PushMark(char c) {
  if (mark_.size() >= kMaxMark) return false;
  if (mark_.front() == '`') {
    const bool closes = !open_.empty() && open_.front() == kFence;
    if (mark_.size() < kFence.size()) {
      if (c != '`') return false;
      mark_ += c;
      if (mark_.size() == kFence.size() && closes) return EndFence();
      return true;
    }
    if (c == '\n') return EndFence();
    // A fence in one line: ```{"name": ...}```
    if (c == '{' || c == '[' || c == '<') return EndFence() && PushBetween(c);
    if (c != '\r' && c != ' ') mark_ += c;
    return BeginsOne(kFenceWords, std::string_view(mark_).substr(kFence.size()));
  }
  mark_ += c;
  if (c == '>') return EndTag();
  if (!open_.empty() && EndOf(open_.back()).starts_with(mark_)) return true;
  if (mark_.starts_with(kFunction)) {
    const std::string_view name = std::string_view(mark_).substr(kFunction.size());
    return BeginsOne(names_, name);
  }
  return BeginsOne(kTags, mark_) || kFunction.starts_with(mark_);
}

bool CallScan::EndFence() {
  const bool closes = !open_.empty() && open_.back() == kFence;
  if (closes) {
    if (mark_ != kFence) return false;
    open_.pop_back();
  } else {
    // A tag that ends without its end may stand before the fence's end.
    const bool missing = open_.size() == 2 && open_.front() == kFence && mark_ == kFence;
    if (!missing && (!open_.empty() || !Has(kFenceWords, std::string_view(mark_).substr(kFence.size()))))
      return false;
    if (missing) {
      open_.clear();
    } else {
      open_.emplace_back(kFence);
    }
    function_.clear();
  }
  mark_.clear();
  state_ = State::kBetween;
  return true;
}

bool CallScan::EndTag() {
  const bool tagged = !open_.empty() && open_.back() != kFence;
  if (tagged && mark_ == EndOf(open_.back())) {
    open_.pop_back();
    function_.clear();
  } else {
    if (open_.empty() && values_.empty() && mark_ == own_tag_) return false;
    // A tag in a tag, or one that takes the place of an end that is missing.
    if (tagged && mark_ != open_.back()) return false;
    if (mark_.starts_with(kFunction)) {
      function_ = mark_.substr(kFunction.size(), mark_.size() - kFunction.size() - 1);
      if (!Has(names_, function_)) return false;
    } else if (!Has(kTags, mark_)) {
      return false;
    }
    if (!tagged) open_.push_back(mark_);
  }
  mark_.clear();
  state_ = State::kBetween;
  return true;
}

bool CallScan::Open(char c) {
  if (containers_.size() >= kMaxNesting) return false;
  containers_ += c;
  after_comma_ = false;
  state_ = c == '{' ? State::kKey : State::kValue;
  return true;
}

bool CallScan::Close() {
  containers_.pop_back();
  after_comma_ = false;
  state_ = State::kAfter;
  if (!containers_.empty()) return true;
  values_.back().end = at_;
  state_ = State::kBetween;
  return true;
}

bool CallScan::PushValue(char c) {
  if (IsSpace(c)) return true;
  if (c == ']' && containers_.back() == '[' && !after_comma_) return containers_.size() > 1 && Close();
  // A list of calls holds objects.
  if (containers_ == "[" && c != '{') return false;
  if (c == '{' || c == '[') return Open(c);
  after_comma_ = false;
  if (c == '"') {
    text_.clear();
    is_key_ = escaped_ = false;
    state_ = State::kString;
    return true;
  }
  state_ = State::kLiteral;
  return c == '-' || (c >= '0' && c <= '9') || c == 't' || c == 'f' || c == 'n';
}

bool CallScan::PushKey(char c) {
  if (IsSpace(c)) return true;
  if (c == '}' && !after_comma_) return Close();
  if (c != '"') return false;
  text_.clear();
  is_key_ = true;
  escaped_ = false;
  state_ = State::kString;
  return true;
}

bool CallScan::PushString(char c) {
  if (escaped_ || c != '"') {
    escaped_ = !escaped_ && c == '\\';
    if (text_.size() < kMaxKept) text_ += c;
    return true;
  }
  if (is_key_) return EndKey();
  state_ = State::kAfter;
  const bool outermost = containers_ == "{" || containers_ == "[{";
  const bool names = outermost && function_.empty() && IsNameKey(key_);
  // Escapes in a name are left to the end.
  return !names || text_.find('\\') != text_.npos || Has(names_, text_);
}

bool CallScan::EndKey() {
  state_ = State::kColon;
  const bool first = !std::exchange(after_comma_, false);
  const bool outermost = (containers_ == "{" || containers_ == "[{") && function_.empty();
  if (!outermost) return true;
  key_ = text_;
  // What begins with another member is an object of another kind.
  return !first || IsNameKey(key_) || IsArgumentsKey(key_) || IsWrapperKey(key_) || key_ == "type" ||
         key_ == "id";
}

bool CallScan::PushAfter(char c) {
  if (IsSpace(c)) return true;
  if (c == ',') {
    after_comma_ = true;
    state_ = containers_.back() == '{' ? State::kKey : State::kValue;
    return true;
  }
  return c == (containers_.back() == '{' ? '}' : ']') && Close();
}

}  // namespace coppice
