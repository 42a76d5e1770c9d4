#include "apps/cli/question.h"

#include <charconv>
#include <string_view>

#include "base/error.h"
#include "tensor/merge_spans.h"

namespace coppice::cli {

namespace {

// Parses a position; returns `fallback` if the text is empty.
std::optional<int64_t> Position(std::string_view text, int64_t fallback) {
  if (text.empty()) return fallback;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// BEGIN:END as in Python's slices: negative positions count from the end, absent ones are the prompt's ends.
std::optional<PositionSpan> ParseSpan(const std::string& text, int64_t tokens) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return std::nullopt;
  const auto begin = Position(std::string_view(text).substr(0, colon), 0);
  const auto end = Position(std::string_view(text).substr(colon + 1), tokens);
  if (!begin || !end) return std::nullopt;
  return PositionSpan{*begin < 0 ? *begin + tokens : *begin, *end < 0 ? *end + tokens : *end};
}

CLI::Validator SpanForm() {
  return {[](std::string& text) -> std::string {
            if (text == "none" || ParseSpan(text, 0)) return {};
            return text + " is not BEGIN:END, as in 100:120 or -20:, nor none";
          },
          "BEGIN:END"};
}

}  // namespace

void AddQuestionOptions(CLI::App& app, QuestionOptions& o) {
  CLI::Option* question = app.add_option(
      "--question", o.text,
      "the part of the prompt that asks, whose tokens score the others; its last occurrence counts. Default: "
      "the user's last message; without --chat the prompt's last tokens");
  app.add_option(
         "--query-span", o.spans,
         "the same by token positions, END exclusive; negative positions count from the prompt's end; may be "
         "repeated; none: the prompt's last tokens")
      ->allow_extra_args(false)
      ->check(SpanForm())
      ->excludes(question);
}

void AddAskOption(CLI::App& app, QuestionOptions& o) {
  app.add_option(
         "--ask", o.asks,
         "a question that follows the prompt, and scores its tokens as --question does; as a message of "
         "a chat if the model has a chat template (implies --chat), else behind a blank line; if "
         "repeated, the questions share the read")
      ->allow_extra_args(false)
      ->take_all()
      ->excludes("--question")
      ->excludes("--query-span")
      ->check([](const std::string& text) {
        return text.find_first_not_of(" \t\r\n") == text.npos ? "the question is empty" : "";
      });
}

PositionSpan FindQuestion(const std::string& question, const EncodedText& prompt) {
  const size_t place = question.empty() ? std::string::npos : prompt.text().rfind(question);
  if (place == std::string::npos)
    throw Error("--question: the prompt does not hold the text '{}'; --ask puts a question behind the prompt",
                question.substr(0, 80));
  return prompt.Span(place, place + question.size());
}

std::vector<PositionSpan> QuerySpans(const std::vector<std::string>& spans, int64_t tokens) {
  if (spans == std::vector<std::string>{"none"}) return {};
  std::vector<PositionSpan> found;
  for (const std::string& text : spans) {
    const std::optional<PositionSpan> span = ParseSpan(text, tokens);
    if (!span) throw Error("--query-span none goes with no other");
    if (span->begin < 0 || span->end > tokens)
      throw Error("--query-span {} is not inside the prompt of {} tokens", text, tokens);
    if (span->begin >= span->end) throw Error("--query-span {} holds no token", text);
    found.push_back(*span);
  }
  return MergeSpans(std::move(found));
}

}  // namespace coppice::cli
