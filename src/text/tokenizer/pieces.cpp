#include "text/tokenizer/tokenizer.h"

namespace coppice {

std::vector<std::string> PiecesOf(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  std::vector<std::string> pieces;
  std::string text;
  for (const int32_t id : ids) text += pieces.emplace_back(tokenizer.Piece(id));
  // SentencePiece writes "▁The" for a text that begins with "The".
  if (text.starts_with(' ') && tokenizer.Decode(ids) == text.substr(1)) {
    for (std::string& piece : pieces) {
      if (piece.empty()) continue;
      piece.erase(0, 1);
      break;
    }
  }
  return pieces;
}

}  // namespace coppice
