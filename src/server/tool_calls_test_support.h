// How the tests of calls show what a parser made of an answer.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/tool_calls.h"

namespace coppice {

// What `parser` makes of an answer that comes in pieces of `step` bytes: texts as they are, calls as
// name(arguments), separated by |.
template <typename Parser>
std::string Written(Parser parser, std::string_view answer, size_t step) {
  std::string text, all;
  const auto add = [&](const std::vector<AnswerPart>& parts) {
    for (const AnswerPart& part : parts) {
      if (!part.call) {
        text += part.text;
        continue;
      }
      if (!text.empty()) all += std::exchange(text, {}) + "|";
      all += fmt::format("{}({})|", part.call->name, part.call->arguments);
    }
  };
  for (size_t at = 0; at < answer.size(); at += step) add(parser.Push(answer.substr(at, step)));
  add(parser.Flush());
  return all + text;
}

}  // namespace coppice
