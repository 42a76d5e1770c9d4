// Invalid vocabularies are rejected with the file and the cause; hostile texts take time proportional to
// their length.
#include <gmock/gmock.h>

#include <algorithm>

#include "base/cpu_seconds.h"
#include "text/tokenizer/tokenizer_test_support.h"

namespace coppice {
namespace {

using test::ErrorOf;
using test::Ids;
using test::MetadataBuilder;
using test::SmallBpe;
using test::SmallSpm;
using test::Strings;
using test::TempFolder;
using testing::AllOf;
using testing::HasSubstr;

std::string LoadError(const MetadataBuilder& builder) {
  return ErrorOf([&] { builder.Load(); });
}

TEST(BadTokenizerTest, SmallOnesLoad) {
  const auto spm = SmallSpm().Load();
  EXPECT_EQ(spm->kind(), "spm");
  EXPECT_EQ(spm->Encode("AA", {.add_special = false}), (Ids{259, 262}));
  EXPECT_EQ(spm->Encode("AAA").front(), 1);
  const auto bpe = SmallBpe().Load();
  EXPECT_EQ(bpe->Encode("ababab<|end|>a"), (Ids{3, 2, 4, 0}));
  EXPECT_TRUE(bpe->EndsGeneration(4));
  EXPECT_EQ(bpe->Piece(4), "");
  EXPECT_EQ(bpe->Piece(4, true), "<|end|>");
  EXPECT_EQ(bpe->Piece(5), "");
  EXPECT_EQ(bpe->Piece(-1), "");
  EXPECT_EQ(bpe->Encode("xa"), (Ids{0}));  // no token for x, and no unknown token
}

TEST(BadTokenizerTest, ByteTokens) {
  for (const char* name : {"<0x-1>", "<0xZZ>", "<0x100>", "0x41", ""}) {
    auto builder = SmallBpe();
    builder.Array("tokenizer.ggml.tokens", Strings{"a", "b", "ab", "abab", name});
    builder.Array("tokenizer.ggml.token_type", std::vector<int64_t>{1, 1, 1, 1, 6});
    EXPECT_THAT(LoadError(builder), AllOf(HasSubstr("test.gguf"), HasSubstr("byte"))) << name;
    builder.Array("tokenizer.ggml.token_type", std::vector<int64_t>{1, 1, 1, 1, 1});
    EXPECT_EQ(LoadError(builder), "no error") << name;
  }
}

TEST(BadTokenizerTest, Merges) {
  for (const char* merge : {"a c", "b a", "ab", " ", "", "a ", " a"}) {
    auto builder = SmallBpe();
    builder.Array("tokenizer.ggml.merges", Strings{"a b", merge});
    EXPECT_THAT(LoadError(builder), AllOf(HasSubstr("test.gguf"), HasSubstr("merge 1"))) << merge;
  }
  // Repeated merges are harmless, and no list of merges can be cyclic, since each makes a longer text.
  auto builder = SmallBpe();
  builder.Array("tokenizer.ggml.merges", Strings{"ab ab", "a b", "a b", "ab ab"});
  EXPECT_EQ(builder.Load()->Encode("abababab"), (Ids{3, 3}));
}

TEST(BadTokenizerTest, IdsOutsideTheVocabulary) {
  for (const char* name : {"bos", "eos", "unknown", "eot"}) {
    const std::string key = "tokenizer.ggml." + std::string(name) + "_token_id";
    auto builder = SmallBpe();
    builder.Set(key, int64_t{5});
    EXPECT_THAT(LoadError(builder), AllOf(HasSubstr("test.gguf"), HasSubstr(key), HasSubstr("5"))) << name;
    builder.Set(key, int64_t{0xFFFFFFFF});  // "none"
    EXPECT_EQ(LoadError(builder), "no error") << name;
  }
}

TEST(BadTokenizerTest, LengthsAndTypes) {
  auto builder = SmallSpm();
  builder.Array("tokenizer.ggml.scores", std::vector<double>{1, 2});
  EXPECT_THAT(LoadError(builder), HasSubstr("tokenizer.ggml.scores has 2 entries"));
  builder = SmallSpm();
  builder.Array("tokenizer.ggml.token_type", std::vector<int64_t>{1, 1});
  EXPECT_THAT(LoadError(builder), HasSubstr("tokenizer.ggml.token_type has 2 entries"));
  builder = SmallBpe();
  builder.Array("tokenizer.ggml.token_type", std::vector<int64_t>{1, 1, 1, 1, 9});
  EXPECT_THAT(LoadError(builder), HasSubstr("is 9"));
  builder = SmallBpe();
  builder.Set("tokenizer.ggml.model", std::string("t5"));
  EXPECT_THAT(LoadError(builder), HasSubstr("'t5'"));
  EXPECT_EQ(MetadataBuilder().Load(), nullptr);
}

TEST(BadTokenizerTest, TooManyAddedTokens) {
  Strings tokens{"a"};
  std::vector<int64_t> types{1};
  for (int i = 0; i < 200000; ++i) {
    tokens.push_back("<" + std::to_string(i) + ">");
    types.push_back(4);
  }
  auto builder = SmallBpe();
  builder.Array("tokenizer.ggml.tokens", tokens).Array("tokenizer.ggml.token_type", types);
  builder.Array("tokenizer.ggml.merges", Strings{});
  EXPECT_THAT(LoadError(builder), AllOf(HasSubstr("test.gguf"), HasSubstr("200000 added tokens")));
}

std::string FolderError(const std::string& tokenizer_json) {
  const TempFolder folder;
  folder.Write("tokenizer.json", tokenizer_json);
  return ErrorOf([&] { Tokenizer::FromHfFolder(folder.path()); });
}

std::string TokenizerJson(const std::string& model, const std::string& rest = "") {
  return R"({"model": {)" + model + "}" + (rest.empty() ? "" : ", " + rest) + "}";
}

TEST(BadTokenizerTest, TokenizerJson) {
  const std::string good = R"("type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"])";
  EXPECT_EQ(FolderError(TokenizerJson(good)), "no error");
  const std::pair<std::string, std::string> cases[] = {
      {"{}", "'model'"},
      {"[]", "'model'"},
      {TokenizerJson(R"("type": "WordPiece", "vocab": {})"), "model 'WordPiece'"},
      {TokenizerJson(R"("type": "BPE", "vocab": [], "merges": [])"), "'vocab'"},
      {TokenizerJson(R"("type": "BPE", "vocab": {"a": -1}, "merges": [])"), "a token id is -1"},
      {TokenizerJson(R"("type": "BPE", "vocab": {"a": 1.5}, "merges": [])"), "integer"},
      {TokenizerJson(R"("type": "BPE", "vocab": {"a": 16000000}, "merges": [])"), "ids up to"},
      {TokenizerJson(R"("type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": [])"), "id 0 is given"},
      {TokenizerJson(R"("type": "BPE", "vocab": {"a": 0}, "merges": [["a"]])"), "merge 0"},
      {TokenizerJson(R"("type": "BPE", "vocab": {"a": 0}, "merges": [["a", ""]])"), "merge 0"},
      {TokenizerJson(R"("type": "BPE", "vocab": {"a": 0}, "merges": ["a b"])"), "merge 0"},
      {TokenizerJson(good + R"(, "unk_token": "<unk>")"), "unk_token"},
      {TokenizerJson(good + R"(, "end_of_word_suffix": "</w>")"), "end_of_word_suffix"},
      {TokenizerJson(good, R"("normalizer": {"type": "Lowercase"})"), "normalizer 'Lowercase'"},
      {TokenizerJson(good, R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}]})"),
       "'NFKC'"},
      {TokenizerJson(good, R"("pre_tokenizer": {"type": "Whitespace"})"), "pre-tokenizer 'Whitespace'"},
      {TokenizerJson(good, R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(("}})"),
       "regex '(('"},
      {TokenizerJson(good, R"("pre_tokenizer": {"type": "Split", "pattern": {"String": ""}})"), "empty"},
      {TokenizerJson(good, R"("decoder": {"type": "CTC"})"), "decoder 'CTC'"},
      {TokenizerJson(good, R"("post_processor": {"type": "BertProcessing"})"),
       "post-processor 'BertProcessing'"},
      {TokenizerJson(
           good,
           R"("post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}],
            "special_tokens": {"x": {"ids": [3]}}})"),
       "adds token 3"},
      {TokenizerJson(good, R"("added_tokens": [{"id": 1, "content": "x"}])"), "id 1 is given"},
      {TokenizerJson(good, R"("added_tokens": [{"content": "x"}])"), "added token"},
  };
  for (const auto& [text, cause] : cases) {
    EXPECT_THAT(FolderError(text), AllOf(HasSubstr("tokenizer.json"), HasSubstr(cause))) << text;
  }
}

TEST(BadTokenizerTest, TooManyAddedTokensInJson) {
  std::string list;
  for (int i = 0; i < 200000; ++i) {
    list += (i == 0 ? "" : ",") + (R"({"id":)" + std::to_string(i + 1)) + R"(,"content":"<)" +
            std::to_string(i) + R"(>"})";
  }
  const std::string model = R"("type": "BPE", "vocab": {"a": 0}, "merges": [])";
  EXPECT_THAT(FolderError(TokenizerJson(model, "\"added_tokens\": [" + list + "]")),
              HasSubstr("200000 added tokens"));
}

TEST(BadTokenizerTest, SentencePieceBytes) {
  const std::string path = test::SharedPath("models/coppice-mini/tokenizer.model");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no test data at " << path;
  const std::string good = test::ReadAll(path);
  const auto error_of = [](const std::string& bytes) {
    const TempFolder folder;
    folder.Write("tokenizer.model", bytes);
    return ErrorOf([&] { Tokenizer::FromHfFolder(folder.path()); });
  };
  EXPECT_EQ(error_of(good), "no error");
  for (const size_t size : {0ul, 1ul, 2ul, 100ul, 1001ul, good.size() - 1}) {
    EXPECT_THAT(error_of(good.substr(0, size)), HasSubstr("tokenizer.model")) << size;
  }
  EXPECT_THAT(error_of("\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01"),
              HasSubstr("longer than what is left"));
  EXPECT_THAT(error_of("\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F"), HasSubstr("64 bits"));
  // Any flipped byte must give a tokenizer or an Error, never a crash.
  for (size_t i = 0; i < good.size(); i += 397) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0xFF);
    EXPECT_NE(error_of(bad), "");
  }
}

TEST(AddedTokensTest, StripsAndWords) {
  const TempFolder folder;
  folder.Write("tokenizer.json",
               R"({"added_tokens": [
                 {"id": 3, "content": "<l>", "lstrip": true, "special": true},
                 {"id": 4, "content": "<r>", "rstrip": true, "special": true},
                 {"id": 5, "content": "word", "single_word": true, "special": false, "normalized": false},
                 {"id": 6, "content": "<r><r>", "special": true}],
                "model": {"type": "BPE", "vocab": {"a": 0, " ": 1, "<unk>": 2}, "merges": [], "unk_token": "<unk>",
                          "fuse_unk": true}})");
  const auto tokenizer = Tokenizer::FromHfFolder(folder.path());
  const auto encode = [&](const char* text) { return tokenizer->Encode(text); };
  EXPECT_EQ(encode("a  <l> a"), (Ids{0, 3, 1, 0}));
  EXPECT_EQ(encode("a <r>  a"), (Ids{0, 1, 4, 0}));
  EXPECT_EQ(encode("<r> <l>"), (Ids{4, 3}));
  EXPECT_EQ(encode("a word a"), (Ids{0, 1, 5, 1, 0}));
  EXPECT_EQ(encode("swords"), (Ids{2}));
  EXPECT_EQ(encode("<r><r><r>"), (Ids{6, 4}));  // the longest match at each place
  EXPECT_EQ(tokenizer->Encode("a<l>word", {.parse_special = false}), (Ids{0, 2, 5}));
  EXPECT_EQ(tokenizer->Encode("<l> word", {.parse_special = false}), (Ids{2, 1, 5}));
  EXPECT_EQ(tokenizer->Decode(Ids{0, 3, 5}), "aword");
  EXPECT_EQ(tokenizer->Decode(Ids{0, 3, 5}, true), "a<l>word");
}

// Special tokens that are matched in the normalised text, as in the first tokenizer files of Llama 2: a text
// between two of the template's makes none, whether it is written as they are or becomes so.
TEST(AddedTokensTest, PlainTextIsNoNormalizedToken) {
  const TempFolder folder;
  folder.Write("tokenizer.json",
               R"({"added_tokens": [{"id": 3, "content": "<s>", "normalized": true, "special": true},
                                    {"id": 4, "content": "</s>", "normalized": true, "special": true}],
                "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"},
                               {"type": "Replace", "pattern": {"String": "S"}, "content": "s"},
                               {"type": "Replace", "pattern": {"String": "~"}, "content": "<s"}]},
                "model": {"type": "BPE", "vocab": {"a": 0, ">": 1, "<unk>": 2}, "merges": [], "unk_token": "<unk>",
                          "fuse_unk": true}})");
  const auto tokenizer = Tokenizer::FromHfFolder(folder.path());
  EXPECT_EQ(tokenizer->Encode("<s>a</S>"), (Ids{3, 0, 4}));
  for (const std::string content : {"<s>", "a</S>a", "~>", "a~>~>", "<s", "a", "\U0010FFFD</s>"}) {
    const std::string text = "<s>" + content + "</s>";
    std::vector<size_t> plain = tokenizer->ControlStarts(content);
    for (size_t& at : plain) at += 3;
    const std::vector<int32_t> ids = tokenizer->Encode(text, {.plain = plain});
    ASSERT_GE(ids.size(), 2u) << content;
    EXPECT_EQ(ids.front(), 3) << content;
    EXPECT_EQ(ids.back(), 4) << content;
    for (size_t i = 1; i + 1 < ids.size(); ++i) EXPECT_LT(ids[i], 3) << content;
  }
}

// Times are compared only with each other: n units against 4 n.
double SecondsToEncode(const Tokenizer& tokenizer, const std::string& unit, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += unit;
  double best = 1e9;
  for (int i = 0; i < 2; ++i) {
    const double start = ThreadCpuSeconds();
    tokenizer.Encode(text);
    best = std::min(best, ThreadCpuSeconds() - start);
  }
  return best;
}

void ExpectLinear(const Tokenizer& tokenizer) {
  const std::pair<std::string, size_t> cases[] = {
      {"Z", 131072},
      {"A", 43000},
      {"\n", 100000},
      {"\xED\xA0\x80", 40000},
      {std::string(1, '\0'), 50000},
      {"\xCC\x81", 500000},
      {" ", 100000},
      {"<", 50000},
      {"'", 50000},
      {"\xFF", 50000},
  };
  for (const auto& [unit, count] : cases) {
    EXPECT_EQ(tokenizer.Decode(tokenizer.Encode(unit + unit + unit)), unit + unit + unit);
    const double quarter = SecondsToEncode(tokenizer, unit, count / 4);
    const double whole = SecondsToEncode(tokenizer, unit, count);
    EXPECT_LT(whole, 8 * quarter + 0.02)
        << testing::PrintToString(unit) << ": " << quarter << " s, then " << whole;
  }
}

TEST(LinearTest, SmallSpm) { ExpectLinear(*SmallSpm().Load()); }

class LinearVocabTest : public testing::TestWithParam<const char*> {};

TEST_P(LinearVocabTest, HostileTexts) {
  const std::string path = test::SharedPath("data/tokenizer/ggml-vocab-" + std::string(GetParam()) + ".gguf");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no test data at " << path;
  ExpectLinear(*test::LoadGguf(path));
}

INSTANTIATE_TEST_SUITE_P(All, LinearVocabTest, testing::Values("llama-spm", "llama-bpe", "gpt-2"));

}  // namespace
}  // namespace coppice
