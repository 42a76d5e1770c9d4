#include "apps/cli/answer_writer.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <span>
#include <utility>

#include "base/error.h"
#include "formats/printable.h"

namespace coppice::cli {

std::string Shown(const std::string& text) {
  return isatty(STDOUT_FILENO) == 1 ? WithoutControls(text, "\n\t") : text;
}

void WriteOut(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw Error("cannot write to stdout");
}

void AnswerWriter::Write(const AnswerReader::Piece& piece) {
  const bool shows = isatty(STDOUT_FILENO) == 1;
  if (shows && !piece.thought.empty()) {
    constexpr const char* kDim = "\033[2m";
    WriteOut((std::exchange(is_dim_, true) ? "" : kDim) + Shown(piece.thought));
  }
  if (piece.text.empty()) return;
  EndThought();
  WriteOut(Shown(stream_.Push(piece.text)));
}

void AnswerWriter::End() {
  EndThought();
  WriteOut(Shown(stream_.Flush()) + "\n");
}

void AnswerWriter::EndThought() {
  if (std::exchange(is_dim_, false)) WriteOut("\033[0m\n\n");
}

void LimitThinking(const ThinkingWish& wish, const Tokenizer& tokenizer,
                   const std::optional<Thinking>& thinking, Request& request) {
  if (!thinking || !(wish.budget || wish.on == false)) return;
  const int64_t most = wish.on == false ? 0 : *wish.budget;
  request.force = [budget = ThinkingBudget(tokenizer, *thinking, most)](
                      std::span<const int32_t> answer) mutable { return budget.Next(answer); };
}

}  // namespace coppice::cli
