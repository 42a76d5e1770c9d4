// A text with its tokens, which maps parts of the text to tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/token_set.h"
#include "text/tokenizer/tokenizer.h"

namespace coppice {

class EncodedText {
 public:
  // `tokenizer` must outlive this object. `plain` takes the place of EncodeOptions::plain.
  EncodedText(std::string text, const Tokenizer& tokenizer, const EncodeOptions& options,
              std::vector<size_t> plain = {});
  EncodedText(EncodedText&&) = default;
  EncodedText(const EncodedText&) = delete;

  const std::string& text() const { return text_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }

  // The tokens that contain a byte of text[begin, end), including tokens that cross its ends. Encodes the
  // text before each end again.
  PositionSpan Span(size_t begin, size_t end) const;

 private:
  size_t TokensBefore(size_t place, bool with_straddling) const;

  std::string text_;
  std::vector<size_t> plain_;
  const Tokenizer& tokenizer_;
  EncodeOptions options_;
  std::vector<int32_t> tokens_;
};

}  // namespace coppice
