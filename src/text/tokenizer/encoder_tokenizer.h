// Tokenizers of encoders, which classify the words of a text: BERT's WordPiece and XLM-RoBERTa's Unigram.
// Tokens carry their places in the text, because such a model says something about the text, and never writes
// one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

struct PlacedToken {
  int32_t id = 0;
  size_t begin = 0;  // bytes of the text that the token stands for; empty for a bare word mark
  size_t end = 0;
  bool begins_word = false;  // else it continues the word of the token before it
  bool marked = false;       // XLM-RoBERTa: the token has the mark of a word that follows white space
  bool unknown = false;      // the vocabulary has no token for it

  friend bool operator==(const PlacedToken&, const PlacedToken&) = default;
};

class EncoderTokenizer {
 public:
  virtual ~EncoderTokenizer() = default;

  // From tokenizer.json, or for BERT from vocab.txt. Throws Error, naming the file, for other kinds.
  static std::unique_ptr<EncoderTokenizer> FromHfFolder(const std::string& path);

  // Without the tokens around a text. Bytes that are not UTF-8 count as U+FFFD. Texts of special tokens are
  // plain text.
  virtual std::vector<PlacedToken> Encode(std::string_view text) const = 0;

  // The text of a token, without the marks of words and of their parts.
  virtual std::string_view Text(int32_t id) const = 0;

  int32_t first() const { return first_; }          // [CLS] or <s>
  int32_t last() const { return last_; }            // [SEP] or </s>
  int32_t full_stop() const { return full_stop_; }  // the token "."; -1 if there is none
  int64_t vocab_size() const { return vocab_size_; }

 protected:
  int32_t first_ = 0, last_ = 0, full_stop_ = -1;
  int64_t vocab_size_ = 0;
};

struct WordPieceParts {
  std::vector<std::string> tokens;  // by id; empty where an id has no token
  std::string source;               // of errors
  bool split_chinese = true;
  int64_t most_chars = 100;  // longer words are unknown
};
std::unique_ptr<EncoderTokenizer> MakeWordPiece(WordPieceParts parts);

struct UnigramParts {
  std::vector<std::pair<std::string, double>> tokens;  // by id, with log probabilities
  int32_t unknown = 0;
  std::string charsmap;  // SentencePiece's table of replaced characters; empty: none
  std::string source;    // of errors
};
std::unique_ptr<EncoderTokenizer> MakeUnigram(UnigramParts parts);

}  // namespace coppice
