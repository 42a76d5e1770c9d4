// WordPiece, as BERT's cased models use it:
//   1. drop control characters; white space, punctuation and each Chinese character end a word
//   2. a word's tokens: the longest token that begins it, then the longest "##..." where that ended
// A word that cannot be cut this way is one unknown token.
// Source: tokenizers of Hugging Face, BertNormalizer, BertPreTokenizer and WordPiece (read for the rules).
#include <algorithm>
#include <utility>

#include "text/tokenizer/encoder_tokenizer.h"
#include "text/tokenizer/encoder_words.h"
#include "text/unicode/unicode.h"

namespace coppice {

namespace {

bool IsChinese(char32_t c) {
  constexpr std::pair<char32_t, char32_t> kRanges[] = {
      {0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
      {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [c](const auto& range) { return c >= range.first && c <= range.second; });
}

bool IsSpace(char32_t c) {
  return c == '\t' || c == '\n' || c == '\r' || (IsWhiteSpace(c) && c > 0x9F) || c == ' ';
}

bool IsDropped(char32_t c) {
  return c == 0 || c == 0xFFFD || c == kInvalidByte || (IsControl(c) && !IsSpace(c));
}

class WordPiece final : public EncoderTokenizer {
 public:
  explicit WordPiece(WordPieceParts parts) : parts_(std::move(parts)) {
    for (size_t id = 0; id < parts_.tokens.size(); ++id)
      ids_.Add(parts_.tokens[id], static_cast<int32_t>(id));
    vocab_size_ = std::ssize(parts_.tokens);
    first_ = ids_.Need("[CLS]", parts_.source);
    last_ = ids_.Need("[SEP]", parts_.source);
    unknown_ = ids_.Need("[UNK]", parts_.source);
    full_stop_ = ids_.Find(".");
  }

  std::string_view Text(int32_t id) const override {
    std::string_view text = parts_.tokens.at(static_cast<size_t>(id));
    if (text.size() > 2 && text.starts_with("##")) text.remove_prefix(2);
    return text;
  }

  std::vector<PlacedToken> Encode(std::string_view text) const override {
    std::vector<PlacedToken> tokens;
    EncoderWord word;
    int64_t chars = 0;  // of the word
    const auto end_word = [&] {
      if (!word.text.empty()) Cut(word, chars, tokens);
      word = {};
      chars = 0;
    };
    for (size_t at = 0; at < text.size();) {
      const Char c = DecodeUtf8(text, at);
      const std::string_view bytes = text.substr(at, c.size);
      const size_t begin = at;
      at += c.size;
      if (IsDropped(c.code)) continue;
      const bool alone = IsPunctuation(c.code) || (parts_.split_chinese && IsChinese(c.code));
      if (alone || IsSpace(c.code)) end_word();
      if (IsSpace(c.code)) continue;
      word.Append(bytes, begin, at);
      ++chars;
      if (alone) end_word();
    }
    end_word();
    return tokens;
  }

 private:
  void Cut(const EncoderWord& word, int64_t chars, std::vector<PlacedToken>& tokens) const {
    const size_t before = tokens.size();
    std::string piece;
    for (size_t begin = 0; begin < word.text.size() && chars <= parts_.most_chars;) {
      size_t end = std::min(word.text.size(), begin + ids_.longest());
      int32_t id = EncoderIds::kNone;
      for (; end > begin; --end) {
        if (end < word.text.size() && (static_cast<unsigned char>(word.text[end]) & 0xC0) == 0x80) continue;
        piece = begin > 0 ? "##" : "";
        piece.append(word.text, begin, end - begin);
        id = ids_.Find(piece);
        if (id != EncoderIds::kNone) break;
      }
      if (end == begin) break;
      tokens.push_back(
          {.id = id, .begin = word.begins[begin], .end = word.ends[end - 1], .begins_word = begin == 0});
      begin = end;
    }
    const bool whole = tokens.size() > before && tokens.back().end == word.ends.back();
    if (whole) return;
    tokens.resize(before);
    tokens.push_back({.id = unknown_,
                      .begin = word.begins.front(),
                      .end = word.ends.back(),
                      .begins_word = true,
                      .unknown = true});
  }

  WordPieceParts parts_;
  EncoderIds ids_;  // of parts_.tokens
  int32_t unknown_ = 0;
};

}  // namespace

std::unique_ptr<EncoderTokenizer> MakeWordPiece(WordPieceParts parts) {
  return std::make_unique<WordPiece>(std::move(parts));
}

}  // namespace coppice
