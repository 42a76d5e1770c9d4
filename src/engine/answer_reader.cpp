#include "engine/answer_reader.h"

#include <algorithm>
#include <utility>

namespace coppice {

std::optional<Thinking> ThinkingOf(const Tokenizer& tokenizer, std::string_view chat_template,
                                   std::span<const int32_t> prompt,
                                   std::optional<std::string_view> continued) {
  std::optional<ThinkingForm> form = ThinkingFormOf(chat_template);
  if (!form) return std::nullopt;
  std::string tail;
  for (size_t at = prompt.size(); at > 0 && tail.size() < kThinkingTail; --at)
    tail.insert(0, tokenizer.Piece(prompt[at - 1], true));
  const ThinkingStart start = ThinkingStartOf(*form, tail, continued);
  return Thinking{*std::move(form), start};
}

std::vector<int32_t> ControlTokens(const Tokenizer& tokenizer, std::span<const std::string_view> texts) {
  std::vector<int32_t> ids;
  for (const std::string_view text : texts) {
    const std::optional<int32_t> id = tokenizer.Find(text);
    if (id && tokenizer.IsControl(*id)) ids.push_back(*id);
  }
  return ids;
}

AnswerReader::AnswerReader(const Tokenizer& tokenizer, const std::optional<Thinking>& thinking,
                           std::vector<int32_t> written)
    : tokenizer_(tokenizer), written_(std::move(written)) {
  if (!thinking) return;
  marks_ = ControlTokens(tokenizer, ThinkingMarks(thinking->form));
  splitter_.emplace(*thinking);
}

AnswerReader::Piece AnswerReader::Push(int32_t id) {
  const auto holds = [id](const std::vector<int32_t>& ids) {
    return std::ranges::find(ids, id) != ids.end();
  };
  Piece piece;
  const bool is_mark = holds(marks_);
  std::string bytes = tokenizer_.Piece(id, is_mark || holds(written_));
  if (!splitter_) {
    piece.text = std::move(bytes);
    return piece;
  }
  const bool before = thinking();
  const size_t left_out = splitter_->left_out();
  std::vector<ThinkingPart> parts;
  if (is_mark) {
    parts = splitter_->Push(characters_.Flush());
    for (ThinkingPart& part : splitter_->PushMark(bytes)) parts.push_back(std::move(part));
    is_whole_ = true;
  } else {
    const std::string characters = characters_.Push(bytes);
    if (!bytes.empty()) is_whole_ = characters.ends_with(bytes.back());
    parts = splitter_->Push(characters);
  }
  for (const ThinkingPart& part : parts) (part.is_thought ? piece.thought : piece.text) += part.text;
  piece.left_out = splitter_->left_out() != left_out;
  piece.is_answer =
      !piece.text.empty() || !(before || thinking() || piece.left_out || !piece.thought.empty());
  if (before || thinking() || !piece.thought.empty()) ++thinking_tokens_;
  return piece;
}

AnswerReader::Piece AnswerReader::Flush() {
  Piece piece;
  if (!splitter_) return piece;
  std::vector<ThinkingPart> parts = splitter_->Push(characters_.Flush());
  for (ThinkingPart& part : splitter_->Flush()) parts.push_back(std::move(part));
  for (const ThinkingPart& part : parts) (part.is_thought ? piece.thought : piece.text) += part.text;
  return piece;
}

ThinkingBudget::ThinkingBudget(const Tokenizer& tokenizer, const Thinking& thinking, int64_t tokens)
    : tokenizer_(tokenizer), thinking_(thinking), most_(tokens) {}

void ThinkingBudget::Begin(const std::string& close) {
  close_ = tokenizer_.Encode(close, {.add_special = false, .parse_special = true});
  forced_ = 0;
  forces_ = false;
}

void ThinkingBudget::Read(int32_t id) {
  if (reader_->thinking()) ++thought_;
  reader_->Push(id);
  ++read_;
  if (!forces_) return;
  // A grammar may have kept the token away.
  const bool goes_on = close_[forced_] == id && ++forced_ < close_.size();
  if (!goes_on) Begin(thinking_.form.force);
}

std::optional<int32_t> ThinkingBudget::Next(std::span<const int32_t> answer) {
  // A second run of the request begins the answer again.
  if (!reader_ || std::ssize(answer) < read_) {
    reader_.emplace(tokenizer_, thinking_);
    read_ = thought_ = 0;
    Begin(thinking_.form.force_first.empty() ? thinking_.form.force : thinking_.form.force_first);
  }
  while (read_ < std::ssize(answer)) Read(answer[static_cast<size_t>(read_)]);
  if (!forces_ && reader_->thinking() && thought_ >= most_ && reader_->is_whole() && !close_.empty())
    forces_ = true;
  return forces_ ? std::optional(close_[forced_]) : std::nullopt;
}

}  // namespace coppice
