// Follows a text byte by byte while it can still become an answer that is nothing but bare calls.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

class CallScan {
 public:
  // `names`: of the functions. `own_tag`: a tag that is left to another parser where it stands first.
  CallScan(std::vector<std::string> names, std::string_view own_tag)
      : names_(std::move(names)), own_tag_(own_tag) {}

  // Returns false once the text can no longer be calls; nothing may be pushed then.
  bool Push(char c);
  // The text may end here.
  bool CanEnd() const { return state_ == State::kBetween && !values_.empty() && mark_.empty(); }

  // A JSON value of the text: its first byte and the one behind its last.
  struct Value {
    size_t begin = 0;
    size_t end = 0;
    std::string function;  // it is the arguments of <function=NAME>; else empty
  };
  const std::vector<Value>& values() const { return values_; }

 private:
  enum class State {
    kBetween,  // before, between and behind values: white space, fences, tags
    kMark,     // in a fence's first line, or in a tag
    kValue,    // a value in a list or behind a colon
    kKey,      // a key, or the end of an object
    kColon,
    kAfter,  // a comma, or the end of the object or list
    kString,
    kLiteral,
  };

  bool PushBetween(char c);
  bool PushMark(char c);
  bool EndFence();
  bool EndTag();
  bool PushValue(char c);
  bool PushKey(char c);
  bool PushString(char c);
  bool PushAfter(char c);
  bool Open(char c);
  bool Close();
  bool EndKey();

  std::vector<std::string> names_;
  std::string own_tag_;
  State state_ = State::kBetween;
  size_t at_ = 0;
  std::string mark_;               // the fence or tag that is being read
  std::vector<std::string> open_;  // the fence and the tag around what comes
  std::string function_;           // of <function=NAME>
  std::string containers_;         // of the value: { and [
  bool after_comma_ = false;       // no end of the object or list may come
  std::string key_;                // of the value's own members, or those of a call inside a wrapper
  std::string text_;               // the first bytes of the string being read
  bool is_key_ = false;
  bool escaped_ = false;
  std::vector<Value> values_;
};

// The members that make an object a call, and those that wrap calls.
bool IsNameKey(std::string_view key);
bool IsArgumentsKey(std::string_view key);
bool IsWrapperKey(std::string_view key);

}  // namespace coppice
