#include "text/encoded_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace coppice {

EncodedText::EncodedText(std::string text, const Tokenizer& tokenizer, const EncodeOptions& options)
    : text_(std::move(text)),
      tokenizer_(tokenizer),
      options_(options),
      tokens_(tokenizer.Encode(text_, options)) {}

PositionSpan EncodedText::Span(size_t begin, size_t end) const {
  return {static_cast<int64_t>(TokensBefore(begin, false)), static_cast<int64_t>(TokensBefore(end, true))};
}

// How many tokens lie in front of the byte at `place`; with or without one that reaches over it.
//
// The text in front, encoded alone, has the same tokens up to where its end changes how letters are joined. From there
// on bytes are counted. Adding up the bytes of all tokens would not do: tokenizers insert spaces and normalise.
size_t EncodedText::TokensBefore(size_t place, bool with_straddling) const {
  const std::vector<int32_t> front = tokenizer_.Encode(std::string_view(text_).substr(0, place), options_);
  auto [in_front, at] = std::ranges::mismatch(front, tokens_);
  // Control tokens count nothing: an EOS that the tokenizer adds is no part of the text.
  size_t bytes = 0;
  for (; in_front != front.end(); ++in_front) bytes += tokenizer_.Piece(*in_front).size();
  for (; bytes > 0 && at != tokens_.end(); ++at) {
    const size_t size = tokenizer_.Piece(*at).size();
    if (size > bytes) {
      if (with_straddling) ++at;
      break;
    }
    bytes -= size;
  }
  return static_cast<size_t>(at - tokens_.begin());
}

}  // namespace coppice
