// Scores a text with a second model, for input compression.
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

// Converts values of one tokenizer's tokens to values of another tokenizer's pieces. `worth` has the value of
// each of `tokens`. A token's value spreads evenly over its bytes; a piece gets the sum of its bytes' values.
// Tokens need not spell the text exactly (an added first space, unknown characters): the value of a token
// that does not match the text goes to the bytes up to the end of the next token that does. The sum of all
// values is preserved, unless `pieces` has no bytes.
std::vector<float> LayOver(std::span<const double> worth, std::span<const std::string> tokens,
                           std::span<const std::string> pieces);

class TextScorer {
 public:
  // Number of tokens that the model reads at once, limited by the context it was trained for. A longer text
  // is read in windows. Each begins kOverlap tokens before the tokens that it scores.
  static constexpr int64_t kWindow = 2048;
  static constexpr int64_t kOverlap = 512;

  // `path`: as for Engine::Load. Throws Error, naming `path`, also if the model has no tokenizer.
  // `backend` (may be null): the one that will run the model; its weights are placed for it.
  TextScorer(const std::string& path, int64_t tile_rows, Backend* backend = nullptr);

  const std::string& path() const { return path_; }
  // `control.progress` gets the share done. Throws Cancelled. Each call allocates its own workspace, so
  // several calls may take turns (RunControl::pause).
  ScoredText Score(std::span<const std::string> pieces, const RunControl& control, Backend& be) const;

 private:
  std::string path_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Transformer transformer_;
  int64_t tile_rows_;
};

}  // namespace coppice
