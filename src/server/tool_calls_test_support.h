// How the tests of calls show what a parser made of an answer.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/tool_calls.h"

namespace coppice {

// Texts as they are, calls as name(arguments), or name(arguments... where the answer ended within them,
// separated by |.
class WrittenParts {
 public:
  void Add(const std::vector<AnswerPart>& parts) {
    for (const AnswerPart& part : parts) {
      if (part.kind == AnswerPart::Kind::kCall && !text_.empty()) all_ += std::exchange(text_, {}) + "|";
      (part.kind == AnswerPart::Kind::kText ? text_ : all_) += part.text;
      if (part.kind == AnswerPart::Kind::kCall) all_ += "(";
      if (part.kind == AnswerPart::Kind::kCallEnd) all_ += ")|";
      if (part.kind == AnswerPart::Kind::kCallCut) all_ += "...|";
    }
  }
  std::string whole() const { return all_ + text_; }

 private:
  std::string text_, all_;
};

// What `parser` makes of an answer that comes in pieces of `step` bytes.
template <typename Parser>
std::string Written(Parser parser, std::string_view answer, size_t step) {
  WrittenParts written;
  for (size_t at = 0; at < answer.size(); at += step) written.Add(parser.Push(answer.substr(at, step)));
  written.Add(parser.Flush());
  return written.whole();
}

}  // namespace coppice
