// Known answers: every vocabulary and case of the shared test data, token by token.
#include "text/tokenizer/tokenizer.h"

#include <gmock/gmock.h>

#include <random>

#include "formats/json.h"
#include "text/tokenizer/tokenizer_test_support.h"

namespace coppice {
namespace {

using test::Ids;
using test::ReadAll;
using test::SharedPath;
using test::Strings;
using test::TempFolder;

std::vector<std::string> SplitBy(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t at = text.find(separator); at != std::string::npos; at = text.find(separator, begin)) {
    parts.push_back(text.substr(begin, at - begin));
    begin = at + separator.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<std::string> VocabTexts(const std::string& gguf) {
  return SplitBy(ReadAll(gguf + ".inp"), "\n__ggml_vocab_test__\n");
}

class VocabTest : public testing::TestWithParam<const char*> {};

TEST_P(VocabTest, GivesTheKnownIdsAndDecodesBack) {
  const std::string path = SharedPath("data/tokenizer/ggml-vocab-" + std::string(GetParam()) + ".gguf");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no test data at " << path;
  const auto tokenizer = test::LoadGguf(path);
  const std::vector<std::string> texts = VocabTexts(path);
  const std::vector<std::string> lines = SplitBy(ReadAll(path + ".out"), "\n");
  ASSERT_GE(texts.size(), 46u);
  ASSERT_GE(lines.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    Ids expected;
    std::istringstream numbers(lines[i]);
    for (int32_t id = 0; numbers >> id;) expected.push_back(id);
    const Ids ids = tokenizer->Encode(texts[i], {.add_special = false});
    EXPECT_EQ(ids, expected) << "text " << i << ": " << testing::PrintToString(texts[i]);
    std::string together;
    for (const std::string& piece : PiecesOf(*tokenizer, ids)) together += piece;
    EXPECT_EQ(together, tokenizer->Decode(ids));
    EXPECT_EQ(tokenizer->Decode(ids), texts[i]) << "text " << i;
    std::string pieces;
    for (const int32_t id : ids) pieces += tokenizer->Piece(id);
    const bool prefixed = tokenizer->kind() == "spm" && !texts[i].empty();
    EXPECT_EQ(pieces, (prefixed ? " " : "") + texts[i]) << "text " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, VocabTest,
                         testing::Values("llama-spm", "llama-bpe", "gpt-2", "qwen2", "qwen35", "phi-3",
                                         "refact", "deepseek-coder", "gemma-4"));

TEST(TokenizerTest, Qwen2FolderEqualsQwen2Gguf) {
  const std::string path = SharedPath("data/tokenizer/ggml-vocab-qwen2.gguf");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no test data at " << path;
  const auto gguf = test::LoadGguf(path);
  const auto folder = Tokenizer::FromHfFolder(SharedPath("data/tokenizer/qwen2-hf"));
  ASSERT_NE(folder, nullptr);
  for (const std::string& text : VocabTexts(path)) EXPECT_EQ(folder->Encode(text), gguf->Encode(text));
  const std::string chat = "<|im_start|>user\nHi<|im_end|>\n";
  EXPECT_EQ(folder->Encode(chat), gguf->Encode(chat));
  EXPECT_EQ(folder->Encode(chat).front(), 151644);
  EXPECT_EQ(folder->Encode(chat, {.parse_special = false}), gguf->Encode(chat, {.parse_special = false}));
  EXPECT_NE(folder->Encode(chat, {.parse_special = false}).front(), 151644);
  EXPECT_EQ(folder->eos(), 151645);
  EXPECT_FALSE(folder->bos().has_value());
  EXPECT_TRUE(folder->EndsGeneration(151643));  // <|endoftext|>
  EXPECT_TRUE(folder->IsControl(151644));
  EXPECT_FALSE(folder->IsControl(0));
  EXPECT_EQ(folder->chat_template(), gguf->chat_template());
  EXPECT_NE(folder->chat_template(), "");
  // NFC composes U+0065 U+0301 into one character.
  EXPECT_EQ(folder->Encode("e\xCC\x81"), folder->Encode("\xC3\xA9"));
}

TEST(TokenizerTest, Llama2SentencePieceEqualsLlamaSpmGguf) {
  const std::string path = SharedPath("data/tokenizer/ggml-vocab-llama-spm.gguf");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no test data at " << path;
  const TempFolder folder;
  folder.Copy(SharedPath("data/tokenizer/llama2-tokenizer.model"), "tokenizer.model");
  const auto model = Tokenizer::FromHfFolder(folder.path());
  const auto gguf = test::LoadGguf(path);
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->vocab_size(), 32000);
  EXPECT_EQ(model->bos(), 1);
  EXPECT_EQ(model->eos(), 2);
  for (const std::string& text : VocabTexts(path)) {
    const Ids ids = model->Encode(text);
    EXPECT_EQ(ids, gguf->Encode(text));
    EXPECT_EQ(ids.front(), 1);
    EXPECT_EQ(model->Decode(ids), text);
  }
  EXPECT_EQ(model->Encode("<s>a", {.add_special = false}).front(), 1);
  EXPECT_NE(model->Encode("<s>a", {.add_special = false, .parse_special = false}).front(), 1);
}

TEST(TokenizerTest, CoppiceMiniGgufEqualsItsFolder) {
  const std::string path = SharedPath("models/coppice-mini/coppice-mini-f16.gguf");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no test data at " << path;
  const auto gguf = test::LoadGguf(path);
  const auto folder = Tokenizer::FromHfFolder(SharedPath("models/coppice-mini"));
  ASSERT_NE(folder, nullptr);
  std::vector<std::string> texts = {"", " ", "The secret code of the misty harbor is 48213.", "a\n\n\tb  c",
                                    "\xC3\xA9\xF0\x9F\x98\x80"};
  const std::string vocab = SharedPath("data/tokenizer/ggml-vocab-llama-spm.gguf");
  if (std::filesystem::exists(vocab + ".inp")) {
    for (const std::string& text : VocabTexts(vocab)) texts.push_back(text);
  }
  for (const std::string& text : texts) {
    EXPECT_EQ(folder->Encode(text), gguf->Encode(text));
    EXPECT_EQ(gguf->Decode(gguf->Encode(text)), text);
  }
}

class GoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(GoldenTest, PromptsGiveTheTokensOfTheGoldenFile) {
  const std::string folder = SharedPath("models/" + std::string(GetParam()));
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no test data at " << folder;
  const std::string gguf = folder + "/" + GetParam() + ".gguf";
  const auto tokenizer =
      std::filesystem::exists(gguf) ? test::LoadGguf(gguf) : Tokenizer::FromHfFolder(folder);
  ASSERT_NE(tokenizer, nullptr);
  const nlohmann::json golden = ReadJsonFile(folder + "/golden_logits_f64.json");
  size_t compared = 0;
  for (const nlohmann::json& one : golden.at("cases")) {
    if (!one.contains("prompt")) continue;
    EXPECT_EQ(tokenizer->Encode(one.at("prompt").get<std::string>()), one.at("tokens").get<Ids>())
        << one.at("prompt");
    ++compared;
  }
  EXPECT_GT(compared, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTest, testing::Values("stories260K", "TinyStories-656K"));

TEST(TokenizerTest, Stories260kHasNoPaddingToken) {
  const std::string path = SharedPath("models/stories260K/stories260K.gguf");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no test data at " << path;
  const auto tokenizer = test::LoadGguf(path);
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_TRUE(tokenizer->EndsGeneration(2));
  EXPECT_FALSE(tokenizer->EndsGeneration(-1));
}

TEST(TokenizerTest, VocabularyWithoutScoresOrTypesLoads) {
  const std::string path = SharedPath("data/parity/tiny_llama_f32.gguf");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no test data at " << path;
  const auto tokenizer = test::LoadGguf(path);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->vocab_size(), 11);
  EXPECT_EQ(tokenizer->Piece(4), "<tok_4>");
  EXPECT_EQ(test::LoadGguf(SharedPath("data/parity/tiny_kquant.gguf")), nullptr);
}

// The text that Hugging Face's decoder shows, with invalid bytes replaced.
std::string Shown(const Tokenizer& tokenizer, const Ids& ids) {
  Utf8Stream stream;
  const std::string text = stream.Push(tokenizer.Decode(ids));
  return text + stream.Flush();
}

TEST(TokenizerTest, HfCases) {
  const std::string path = SharedPath("data/parity/hf_tokenizer_cases.json");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no test data at " << path;
  size_t compared = 0;
  std::string absent;
  const nlohmann::json suites = ReadJsonFile(path);
  for (const auto& [name, suite] : suites.items()) {
    const auto file = suite.at("tokenizer").get<std::string>();
    if (!std::filesystem::exists(SharedPath("data/parity/" + file))) {
      absent += " " + file;
      continue;
    }
    const TempFolder folder;
    folder.Copy(SharedPath("data/parity/" + file),
                file.ends_with(".model") ? "tokenizer.model" : "tokenizer.json");
    const auto tokenizer = Tokenizer::FromHfFolder(folder.path());
    for (const nlohmann::json& one : suite.at("cases")) {
      const auto text = one.at("text").get<std::string>();
      const Ids ids = tokenizer->Encode(text);
      EXPECT_EQ(ids, one.at("ids").get<Ids>()) << name << ": " << testing::PrintToString(text);
      EXPECT_EQ(Shown(*tokenizer, ids), one.at("decoded").get<std::string>()) << name << ": " << text;
      ++compared;
    }
  }
  RecordProperty("absent", absent);
  std::cout << "compared " << compared << " cases; absent tokenizer files:" << absent << "\n";
  EXPECT_GE(compared, 80u);
}

// Falcon's order: digits are split after bytes became letters of GPT-2's alphabet, in which byte 0xB2 is a
// superscript two.
TEST(TokenizerTest, PreTokenizersAfterByteLevelSeeItsAlphabet) {
  const TempFolder folder;
  folder.Write("tokenizer.json", R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
      {"type": "Digits", "individual_digits": true}]}, "decoder": {"type": "ByteLevel"},
      "model": {"type": "BPE", "merges": ["Â ²"], "vocab": {"Â": 0, "²": 1, "Â²": 2}}})");
  const auto tokenizer = Tokenizer::FromHfFolder(folder.path());
  EXPECT_EQ(tokenizer->Encode("\xC2\xB2"), (Ids{0, 1}));  // no merge across the split
  EXPECT_EQ(tokenizer->Decode(Ids{0, 1}), "\xC2\xB2");
}

TEST(TokenizerTest, FolderWithoutTokenizerIsNull) {
  const TempFolder folder;
  EXPECT_EQ(Tokenizer::FromHfFolder(folder.path()), nullptr);
}

TEST(TokenizerTest, ChatTemplateSources) {
  const std::string data = SharedPath("data/tokenizer/llama2-tokenizer.model");
  if (!std::filesystem::exists(data)) GTEST_SKIP() << "no test data at " << data;
  const TempFolder folder;
  folder.Copy(data, "tokenizer.model");
  EXPECT_EQ(Tokenizer::FromHfFolder(folder.path())->chat_template(), "");
  folder.Write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "R"},
      {"name": "default", "template": "D"}], "add_bos_token": false, "add_eos_token": true})");
  folder.Write("generation_config.json", R"({"eos_token_id": [7, 40000]})");
  const auto tokenizer = Tokenizer::FromHfFolder(folder.path());
  EXPECT_EQ(tokenizer->chat_template(), "D");
  EXPECT_EQ(tokenizer->Encode("a"), (Ids{263, 2}));
  EXPECT_TRUE(tokenizer->EndsGeneration(7));
  EXPECT_TRUE(tokenizer->EndsGeneration(40000));
  EXPECT_TRUE(tokenizer->EndsGeneration(2));
  folder.Write("chat_template.jinja", "J");
  EXPECT_EQ(Tokenizer::FromHfFolder(folder.path())->chat_template(), "J");
}

TEST(Tokenizer, EncodeEndsWhenItIsCancelled) {
  const std::atomic<bool> cancelled{true};
  EXPECT_THROW(test::SmallSpm().Load()->Encode("aaa", {.cancelled = &cancelled}), Cancelled);
  EXPECT_THROW(test::SmallBpe().Load()->Encode("ab", {.cancelled = &cancelled}), Cancelled);
}

// A vocabulary with a token that reaches into the next word is merged over the whole text. One without is
// merged word by word: the tokens are the same where that token does not occur.
TEST(Tokenizer, WordsAreMergedAsTheWholeText) {
  const auto load = [](bool reaches_over) {
    Strings tokens{"<unk>", "\u2581"};
    for (const char* text :
         {"a", "b", "ab", "\u2581a", "\u2581ab", "\u2581\u2581", "\u2581\u2581a", "ba", "abab"})
      tokens.emplace_back(text);
    if (reaches_over) tokens.emplace_back("q\u2581q");
    std::vector<int64_t> types(tokens.size(), 1);
    types[0] = 2;
    std::vector<double> scores(tokens.size());
    for (size_t i = 0; i < scores.size(); ++i) scores[i] = -static_cast<double>(i * 7 % 11);
    return test::MetadataBuilder()
        .Set("tokenizer.ggml.model", std::string("llama"))
        .Array("tokenizer.ggml.tokens", std::move(tokens))
        .Array("tokenizer.ggml.token_type", std::move(types))
        .Array("tokenizer.ggml.scores", std::move(scores))
        .Load();
  };
  const auto by_words = load(false), whole = load(true);
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) text += "aabb  x"[random() % 7];  // x has no token
    EXPECT_EQ(by_words->Encode(text), whole->Encode(text)) << '"' << text << '"';
  }
  EXPECT_EQ(by_words->Encode(""), whole->Encode(""));
}

TEST(Tokenizer, PlainBytesAreInNoControlToken) {
  const std::unique_ptr<Tokenizer> tokenizer = test::SmallSpm().Load();  // <s> is 1, </s> 2
  const std::string text = "<s>a</s><s>";
  const auto controls = [&](const std::vector<size_t>& plain) {
    Ids found;
    for (const int32_t id : tokenizer->Encode(text, {.add_special = false, .plain = plain})) {
      if (tokenizer->IsControl(id)) found.push_back(id);
    }
    return found;
  };
  EXPECT_EQ(controls({}), (Ids{1, 2, 1}));
  EXPECT_EQ(controls({0}), (Ids{2, 1}));
  EXPECT_EQ(controls({2}), (Ids{2, 1}));
  EXPECT_EQ(controls({3}), (Ids{1, 2, 1}));
  EXPECT_EQ(controls({7}), (Ids{1, 1}));
  EXPECT_EQ(controls({0, 4, 8}), Ids());
  EXPECT_EQ(controls({0, 4, 8, 50}), Ids());
  const std::vector<size_t> all{0, 4, 8};
  EXPECT_EQ(tokenizer->Encode(text, {.plain = all}), tokenizer->Encode(text, {.parse_special = false}));
  EXPECT_EQ(tokenizer->ControlStarts(text), all);
  EXPECT_EQ(tokenizer->ControlStarts("a <b> s> </S>"), std::vector<size_t>());
  EXPECT_EQ(tokenizer->ControlStarts("a < </ \n"), (std::vector<size_t>{4}));  // may go on behind the space
  EXPECT_EQ(tokenizer->ControlStarts("a <"), (std::vector<size_t>{2}));
}

}  // namespace
}  // namespace coppice
