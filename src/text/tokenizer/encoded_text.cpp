#include "text/tokenizer/encoded_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace coppice {

EncodedText::EncodedText(std::string text, const Tokenizer& tokenizer, const EncodeOptions& options,
                         std::vector<size_t> plain)
    : text_(std::move(text)), plain_(std::move(plain)), tokenizer_(tokenizer), options_(options) {
  options_.plain = plain_;
  tokens_ = tokenizer.Encode(text_, options_);
}

PositionSpan EncodedText::Span(size_t begin, size_t end) const {
  return {static_cast<int64_t>(TokensBefore(begin, false)), static_cast<int64_t>(TokensBefore(end, true))};
}

// The number of tokens before the byte at `place`, with or without a token that crosses it.
//
// The text before `place`, encoded alone, has the same tokens except where its end changes how characters are
// merged. From the first difference on, this counts bytes. Counting the bytes of all tokens would be wrong,
// because tokenizers insert spaces and normalise.
size_t EncodedText::TokensBefore(size_t place, bool with_straddling) const {
  const std::vector<int32_t> front = tokenizer_.Encode(std::string_view(text_).substr(0, place), options_);
  auto [in_front, at] = std::ranges::mismatch(front, tokens_);
  // Control tokens count as 0 bytes: an EOS that the tokenizer adds is not part of the text.
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
