// Bytes to text for a stream, following Unicode's "maximal subpart" practice: each longest invalid prefix
// becomes one U+FFFD, and an incomplete character at the end waits for more bytes.
#include "text/tokenizer/tokenizer.h"
#include "text/unicode/unicode.h"

namespace coppice {

std::string Utf8Stream::Push(std::string_view bytes) {
  held_.append(bytes);
  std::string out;
  size_t at = 0;
  while (at < held_.size()) {
    const std::string_view rest = std::string_view(held_).substr(at);
    const Utf8Prefix prefix = MeasureUtf8(rest);
    if (!prefix.complete) break;
    if (DecodeUtf8(rest, 0).code == kInvalidByte) {
      out.append("\xEF\xBF\xBD");
    } else {
      out.append(rest.substr(0, prefix.size));
    }
    at += prefix.size;
  }
  held_.erase(0, at);
  return out;
}

std::string Utf8Stream::Flush() {
  const bool unfinished = !held_.empty();
  held_.clear();
  return unfinished ? "\xEF\xBF\xBD" : "";
}

}  // namespace coppice
