// The options that say where in the prompt the question is: --question and --query-span; and --ask, which
// adds one.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tensor/token_set.h"
#include "text/tokenizer/encoded_text.h"

namespace coppice::cli {

struct QuestionOptions {
  std::optional<std::string> text;
  std::vector<std::string> spans;  // "BEGIN:END", or "none" alone
  std::vector<std::string> asks;   // questions that follow the prompt, each in a run of its own
};

void AddQuestionOptions(CLI::App& app, QuestionOptions& options);

// --ask, for commands that answer; after AddQuestionOptions.
void AddAskOption(CLI::App& app, QuestionOptions& options);

// The tokens of the last occurrence of `question` in `prompt`. Throws Error if there is none.
PositionSpan FindQuestion(const std::string& question, const EncodedText& prompt);

// --query-span as spans of a prompt of `tokens` tokens; empty for "none". Throws Error for a span outside the
// prompt.
std::vector<PositionSpan> QuerySpans(const std::vector<std::string>& spans, int64_t tokens);

}  // namespace coppice::cli
