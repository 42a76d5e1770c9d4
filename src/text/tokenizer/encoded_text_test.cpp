// Maps parts of a text to tokens, with the bundled model's vocabulary (separate tokens for spaces and digits,
// an inserted leading space) and with byte-level BPE.
#include "text/tokenizer/encoded_text.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "text/tokenizer/tokenizer_test_support.h"

namespace coppice {
namespace {

const std::string kText = "A story.\n\nWhat is the secret code? It says 48213.\n";

// The text of the tokens of the last occurrence of `part`.
std::string TokensOf(const EncodedText& text, const std::string& part, const Tokenizer& tokenizer) {
  const size_t place = text.text().rfind(part);
  const PositionSpan span = text.Span(place, place + part.size());
  std::string found;
  for (int64_t i = span.begin; i < span.end; ++i)
    found += tokenizer.Piece(text.tokens()[static_cast<size_t>(i)], true);
  return found;
}

// For every part of the text: its tokens contain all of it, and each of them some of it.
void CheckEveryPart(const Tokenizer& tokenizer) {
  const EncodedText text(kText, tokenizer, {.add_special = true});
  const std::vector<std::string> pieces = PiecesOf(tokenizer, text.tokens());
  for (size_t begin = 0; begin < kText.size(); ++begin) {
    for (size_t end = begin + 1; end <= kText.size(); ++end) {
      const PositionSpan span = text.Span(begin, end);
      std::string in_front, found;
      for (size_t i = 0; i < static_cast<size_t>(span.begin); ++i) in_front += pieces[i];
      for (auto i = static_cast<size_t>(span.begin); i < static_cast<size_t>(span.end); ++i)
        found += pieces[i];
      ASSERT_LE(in_front.size(), begin);
      ASSERT_GE(in_front.size() + found.size(), end);
      ASSERT_GT(in_front.size() + pieces[static_cast<size_t>(span.begin)].size(), begin);
      ASSERT_LT(in_front.size() + found.size() - pieces[static_cast<size_t>(span.end) - 1].size(), end);
    }
  }
}

TEST(EncodedText, BundledVocabulary) {
  const auto tokenizer = test::LoadGguf(std::string(COPPICE_SOURCE_DIR) + "/models/coppice-mini-f16.gguf");
  CheckEveryPart(*tokenizer);
  const EncodedText text(kText, *tokenizer, {.add_special = true});
  EXPECT_EQ(TokensOf(text, "48213", *tokenizer), "48213");
  EXPECT_EQ(TokensOf(text, "code", *tokenizer),
            " code");  // a word and the space before it are one token
}

TEST(EncodedText, SharedVocabularies) {
  for (const char* name : {"llama-spm", "llama-bpe", "gpt-2", "qwen2"}) {
    const std::string path = test::SharedPath("data/tokenizer/ggml-vocab-" + std::string(name) + ".gguf");
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no test data at " << path;
    SCOPED_TRACE(name);
    CheckEveryPart(*test::LoadGguf(path));
  }
}

}  // namespace
}  // namespace coppice
