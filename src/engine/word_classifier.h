// Reads a prompt's text with LLMLingua-2's classifier, for input compression.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/token_classifier.h"
#include "policies/method_info.h"
#include "text/tokenizer/encoder_tokenizer.h"

namespace coppice {

struct ReadText {
  std::vector<ReadWord> words;  // in the text's order
  double flops = 0;
};

class WordClassifier {
 public:
  // Tokens that the classifier reads at once, with the two around a text; fewer if its table of positions is
  // shorter.
  static constexpr int64_t kChunkTokens = 512;

  // `path`: a Hugging Face folder. Throws Error, naming it and the cause.
  explicit WordClassifier(const std::string& path);

  const std::string& path() const { return path_; }
  // The words of the pieces' text. As in the authors' program, a chunk ends behind the last full stop that it
  // can hold, and the text of each chunk is cut into tokens anew. Words with unknown tokens alone are left
  // out, so they never stay. control.progress gets the share done. Throws Cancelled.
  ReadText Read(std::span<const std::string> pieces, const RunControl& control, Backend& be) const;

  // The begin and end of each chunk's text, for tests.
  std::vector<std::pair<size_t, size_t>> ChunksOf(std::string_view text) const;

 private:
  std::string path_;
  std::unique_ptr<EncoderTokenizer> tokenizer_;
  TokenClassifier classifier_;
};

}  // namespace coppice
