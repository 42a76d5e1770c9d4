// Another model's view of a text, for input compression.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/transformer.h"
#include "text/tokenizer/tokenizer.h"

namespace coppice {

struct ScoredText {
  std::vector<float> bits;  // [pieces]: -log2 of the piece's probability after the text before it
  double flops = 0;
};

// What tokens of one tokenizer are worth, laid over the pieces of another. `worth` and `tokens` belong
// together: a token's worth spreads evenly over its bytes, and a piece is worth what its bytes are. Tokens
// need not spell the text exactly (a space put first, characters they do not know): what cannot be placed
// goes to the text that the next token which can be placed skips. The sum stays, where `pieces` have any
// byte.
std::vector<float> LayOver(std::span<const double> worth, std::span<const std::string> tokens,
                           std::span<const std::string> pieces);

class TextScorer {
 public:
  // Tokens that the model sees at once, the context it was trained for permitting. A longer text is read in
  // windows that begin kOverlap tokens before what they score.
  static constexpr int64_t kWindow = 2048;
  static constexpr int64_t kOverlap = 512;

  // `path` as Engine::Load takes it. Throws Error, naming it, also where it has no tokenizer.
  TextScorer(const std::string& path, int64_t tile_rows);

  const std::string& path() const { return path_; }
  // `control.progress` is told the share that is done. Throws Cancelled. Its memory is its own, so several
  // may score in turns (RunControl::pause).
  ScoredText Score(std::span<const std::string> pieces, const RunControl& control, Backend& be) const;

 private:
  std::string path_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Transformer transformer_;
  int64_t tile_rows_;
};

}  // namespace coppice
