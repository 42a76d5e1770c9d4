// Small vocabularies and wrong files. Whole vocabularies against Hugging Face's tokenizers:
// src/engine/word_classifier_test.cpp.
#include "text/tokenizer/encoder_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/limits.h"
#include "test_files.h"

namespace coppice {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<std::string> kWordPieces = {"[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", ".", "a"};

std::vector<std::string> Texts(const EncoderTokenizer& tokenizer, const std::string& text) {
  std::vector<std::string> texts;
  for (const PlacedToken& token : tokenizer.Encode(text))
    texts.push_back((token.begins_word ? "" : "+") +
                    (token.unknown ? "?" : std::string(tokenizer.Text(token.id))) + "@" +
                    text.substr(token.begin, token.end - token.begin));
  return texts;
}

TEST(WordPieceTest, TakesTheLongestPieces) {
  const auto tokenizer = MakeWordPiece({.tokens = kWordPieces, .source = "x"});
  EXPECT_EQ(tokenizer->first(), 1);
  EXPECT_EQ(tokenizer->last(), 2);
  EXPECT_EQ(tokenizer->full_stop(), 6);
  EXPECT_THAT(Texts(*tokenizer,
                    "unaffable a.unx \xFF"
                    "a"),
              ElementsAre("un@un", "+aff@aff", "+able@able", "a@a", ".@.", "?@unx", "a@a"));
}

TEST(WordPieceTest, AnEmptyTextOfTheVocabularyIsNoToken) {
  const auto tokenizer =
      MakeWordPiece({.tokens = {"[UNK]", "", "[CLS]", "", "[SEP]", "a"}, .source = "x", .most_chars = 3});
  EXPECT_EQ(tokenizer->vocab_size(), 6);
  EXPECT_THAT(Texts(*tokenizer, "a b aaaa"), ElementsAre("a@a", "?@b", "?@aaaa"));
}

TEST(UnigramTest, TakesTheLikeliestCut) {
  const auto tokenizer = MakeUnigram({.tokens = {{"<s>", 0},
                                                 {"</s>", 0},
                                                 {"<unk>", 0},
                                                 {"\xE2\x96\x81"
                                                  "ab",
                                                  -3},
                                                 {"\xE2\x96\x81"
                                                  "a",
                                                  -1},
                                                 {"b", -1},
                                                 {".", -2},
                                                 {"\xE2\x96\x81", -4}},
                                      .unknown = 2,
                                      .charsmap = {},
                                      .source = "x"});
  EXPECT_EQ(tokenizer->full_stop(), 6);
  EXPECT_THAT(Texts(*tokenizer, "ab zz."), ElementsAre("a@a", "+b@b", "@", "+?@zz", ".@."));
}

// A folder with one file, or two.
std::string Refusal(const std::string& name, const std::string& text, const std::string& config = "") {
  const TempFolder folder;
  folder.Write(name, text);
  if (!config.empty()) folder.Write("tokenizer_config.json", config);
  return ErrorOf([&] { EncoderTokenizer::FromHfFolder(folder.path()); });
}

json WordPieceFile(const json& vocab) {
  return {{"normalizer", {{"type", "BertNormalizer"}, {"lowercase", false}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"model", {{"type", "WordPiece"}, {"vocab", vocab}}}};
}

TEST(EncoderFiles, AVocabularyCannotTakeMoreMemoryThanItsFile) {
  const json good = {{"[UNK]", 0}, {"[CLS]", 1}, {"[SEP]", 2}};
  EXPECT_EQ(Refusal("tokenizer.json", WordPieceFile(good).dump()), "no error");
  json vocab = good;
  vocab["a"] = 65000;
  EXPECT_EQ(Refusal("tokenizer.json", WordPieceFile(vocab).dump()), "no error") << "holes are allowed";
  vocab["a"] = limits::kMaxVocab - 1;
  EXPECT_THAT(Refusal("tokenizer.json", WordPieceFile(vocab).dump()),
              HasSubstr("4 tokens, and one has the id 16777215"));
  vocab["a"] = limits::kMaxVocab;
  EXPECT_THAT(Refusal("tokenizer.json", WordPieceFile(vocab).dump()), HasSubstr("16777216"));
  vocab["a"] = -1;
  EXPECT_THAT(Refusal("tokenizer.json", WordPieceFile(vocab).dump()), HasSubstr("a token's id"));
  vocab["a"] = 2;
  EXPECT_THAT(Refusal("tokenizer.json", WordPieceFile(vocab).dump()), HasSubstr("id 2 is given to"));
}

TEST(EncoderFiles, AVocabularyOfLines) {
  const std::string cased = R"({"do_lower_case": false})";
  EXPECT_EQ(Refusal("vocab.txt", "[UNK]\r\n[CLS]\n[SEP]", cased), "no error");
  EXPECT_THAT(Refusal("vocab.txt", "[UNK]\n[CLS]\n[SEP]\n"), HasSubstr("cased")) << "the default lowers case";
  EXPECT_THAT(Refusal("vocab.txt", "", cased), HasSubstr("no token [CLS]"));
  EXPECT_THAT(Refusal("vocab.txt", std::string(static_cast<size_t>(limits::kMaxVocab) + 1, '\n'), cased),
              HasSubstr("more than 16777216 lines"));
}

}  // namespace
}  // namespace coppice
