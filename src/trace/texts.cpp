#include "trace/texts.h"

#include "text/unicode/unicode.h"

namespace coppice {

std::string ReplaceInvalidUtf8(std::string_view text) { return TextsOfPieces({std::string(text)})[0]; }

std::vector<std::string> TextsOfPieces(const std::vector<std::string>& pieces) {
  constexpr uint32_t kReplacement = 0xFFFD;
  std::string all;
  for (const std::string& piece : pieces) all += piece;
  std::vector<std::string> texts(pieces.size());
  size_t at = 0;   // in `all`
  size_t end = 0;  // of the current piece
  for (size_t i = 0; i < pieces.size(); ++i) {
    end += pieces[i].size();
    while (at < end) {
      const Char c = DecodeUtf8(all, at);
      AppendUtf8(c.code == kInvalidByte ? kReplacement : c.code, texts[i]);
      at += c.size;
    }
  }
  return texts;
}

}  // namespace coppice
