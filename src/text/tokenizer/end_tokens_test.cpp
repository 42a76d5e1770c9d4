// Which tokens end an answer, and what a file's missing pre-tokenizer means.
#include "text/tokenizer/end_tokens.h"

#include <gmock/gmock.h>

#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/tokenizer_test_support.h"

namespace coppice {
namespace {

using test::Ids;
using test::MetadataBuilder;
using test::SmallBpe;
using test::Strings;
using test::TempFolder;
using testing::HasSubstr;

// A tokenizer of "a" and these tokens, all of the type normal.
std::unique_ptr<Tokenizer> With(const Strings& tokens) {
  Strings all{"a"};
  all.insert(all.end(), tokens.begin(), tokens.end());
  auto builder = SmallBpe();
  builder.Array("tokenizer.ggml.token_type", std::vector<int64_t>(all.size(), 1));
  builder.Array("tokenizer.ggml.tokens", std::move(all)).Array("tokenizer.ggml.merges", Strings{});
  return builder.Load();
}

TEST(EndTokens, OfAnyType) {
  for (const char* name : {"<|im_end|>", "<EOT>", "_<EOT>", "<end_of_utterance>", "<｜end▁of▁sentence｜>",
                           "<|return|>", "[e~[", "<|fim_pad|>", "<|eot|>"}) {
    const auto tokenizer = With({name});
    EXPECT_TRUE(tokenizer->EndsGeneration(1)) << name;
    EXPECT_TRUE(tokenizer->IsControl(1)) << name;
    EXPECT_EQ(tokenizer->Encode("a" + std::string(name)), (Ids{0, 1})) << name;
    EXPECT_EQ(tokenizer->ControlStarts(name).front(), 0u) << name;
  }
  const auto other = With({"<|start|>"});
  EXPECT_FALSE(other->EndsGeneration(1));
  EXPECT_FALSE(other->IsControl(1));
}

TEST(EndTokens, ThoseThatAnotherFormatGivesAMeaning) {
  const auto oss = With({"<|end|>", "<|return|>", "<|call|>"});
  EXPECT_FALSE(oss->EndsGeneration(1));
  EXPECT_TRUE(oss->EndsGeneration(2));
  EXPECT_TRUE(oss->EndsGeneration(3));
  EXPECT_FALSE(With({"<|end|>", "<|calls|>", "<|flush|>"})->EndsGeneration(1));
  EXPECT_TRUE(With({"<|end|>", "<|call|>"})->EndsGeneration(1));
  EXPECT_FALSE(With({"</s>", "<|tool_response>"})->EndsGeneration(1));
  EXPECT_TRUE(With({"</s>"})->EndsGeneration(1));
}

TEST(EndTokens, AListOfIds) {
  auto builder = SmallBpe();
  builder.Array("tokenizer.ggml.eos_token_ids", std::vector<int64_t>{1, 2, 900, -1});
  const auto tokenizer = builder.Load();
  EXPECT_EQ(tokenizer->eos(), 1);
  EXPECT_TRUE(tokenizer->EndsGeneration(1));
  EXPECT_TRUE(tokenizer->EndsGeneration(2));
  EXPECT_FALSE(tokenizer->EndsGeneration(0));
  EXPECT_FALSE(tokenizer->EndsGeneration(900));
}

TEST(EndTokens, OfAFolderWhateverItCallsThem) {
  const TempFolder folder;
  folder.Write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
      "added_tokens": [{"id": 1, "content": "<|im_end|>", "special": false},
                       {"id": 2, "content": "<|x|>", "special": false}]})");
  const auto tokenizer = Tokenizer::FromHfFolder(folder.path());
  EXPECT_TRUE(tokenizer->EndsGeneration(1));
  EXPECT_TRUE(tokenizer->IsControl(1));
  EXPECT_FALSE(tokenizer->IsControl(2));
}

TEST(PreTokenizerNote, SaysThatTheNameIsMissingOrUnknown) {
  const auto note = [](const char* pre) {
    MetadataBuilder builder = SmallBpe();
    return builder.Set("tokenizer.ggml.pre", std::string(pre)).Load()->note();
  };
  EXPECT_EQ(note("gpt-2"), "");
  EXPECT_EQ(note("default"), "");
  EXPECT_THAT(note("no-\nsuch"),
              HasSubstr("test.gguf: tokenizer.ggml.pre is \"no-?such\", which is not known"));
  EXPECT_THAT(note(""), HasSubstr("tokenizer.ggml.pre is missing"));
  MetadataBuilder without = SmallBpe();
  EXPECT_THAT(without.Remove("tokenizer.ggml.pre").Load()->note(),
              HasSubstr("tokenizer.ggml.pre is missing"));
}

// "default" splits numbers by three digits, GPT-2's expression does not.
TEST(PreTokenizerNote, AnUnknownNameSplitsAsDefault) {
  const auto ids = [](const char* pre) {
    MetadataBuilder builder = SmallBpe();
    builder.Array("tokenizer.ggml.tokens", Strings{"1", "2", "3", "4", "34"});
    builder.Array("tokenizer.ggml.token_type", std::vector<int64_t>(5, 1));
    builder.Array("tokenizer.ggml.merges", Strings{"3 4"});
    return builder.Set("tokenizer.ggml.pre", std::string(pre)).Load()->Encode("1234");
  };
  EXPECT_THAT(ids("no-such"), testing::ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(ids("default"), testing::ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(ids("gpt-2"), testing::ElementsAre(0, 1, 4));
}

// llama.cpp's expressions, one after another: runs of symbols, GPT-2's, numbers, three digits.
TEST(PreTokenizerNote, DefaultIsFourExpressions) {
  const GgufPreTokenizer pre = DefaultGgufPreTokenizer();
  const auto split = [&](std::string text) {
    Pieces pieces;
    pieces.ranges.push_back({0, text.size()});
    pieces.text = std::move(text);
    pre.pre_tokenizer->Apply(pieces);
    std::string joined;
    for (const TextRange range : pieces.ranges)
      joined += (joined.empty() ? "" : "|") + pieces.text.substr(range.begin, range.end - range.begin);
    return joined;
  };
  EXPECT_EQ(split("I'm 12345"), "I|'|m| |123|45");
  EXPECT_EQ(split("x=$1_000!?  y\n"), "x|=$|1|_|000|!?| | y|\n");
  EXPECT_EQ(split("\t\tok ½"), "\t|\t|ok| |½");
}

TEST(ToolTemplate, TheOneNamedToolUse) {
  auto builder = SmallBpe();
  builder.Set("tokenizer.chat_template", std::string("D"));
  EXPECT_EQ(builder.Load()->tool_template(), "");
  builder.Set("tokenizer.chat_template.tool_use", std::string("T"));
  const auto gguf = builder.Load();
  EXPECT_EQ(gguf->chat_template() + gguf->tool_template(), "DT");
  gguf->SetChatTemplate("X");
  EXPECT_EQ(gguf->chat_template() + gguf->tool_template(), "X");

  const TempFolder folder;
  folder.Write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})");
  const auto both = [&] {
    const auto tokenizer = Tokenizer::FromHfFolder(folder.path());
    return tokenizer->chat_template() + "," + tokenizer->tool_template();
  };
  folder.Write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "t"},
      {"name": "default", "template": "d"}]})");
  EXPECT_EQ(both(), "d,t");
  folder.Write("chat_template.jinja", "D");
  EXPECT_EQ(both(), "D,");  // as transformers, which reads either the list or the files
  std::filesystem::create_directory(folder.path() + "/additional_chat_templates");
  folder.Write("additional_chat_templates/tool_use.jinja", "T");
  EXPECT_EQ(both(), "D,T");
}

}  // namespace
}  // namespace coppice
