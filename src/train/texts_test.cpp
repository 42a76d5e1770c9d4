#include "train/texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/open_model.h"
#include "test_files.h"

namespace coppice {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class TextFiles : public testing::Test {
 protected:
  void SetUp() override {
    tokenizer_ = OpenModel(COPPICE_SOURCE_DIR "/models/coppice-mini-f16.gguf").tokenizer;
    ASSERT_TRUE(tokenizer_);
  }
  Texts Read(const std::string& name, std::string_view bytes, const TextOptions& options = {}) {
    return ReadTexts({folder_.Write(name, bytes)}, *tokenizer_, tokenizer_->vocab_size(), options);
  }
  std::string Refusal(std::string_view line) {
    return ErrorOf([&] { Read("t.jsonl", line, {.shortest = 1}); });
  }
  std::string TextOf(const TrainingText& text, bool response) const {
    const std::span<const int32_t> ids(text.tokens);
    const auto prompt = static_cast<size_t>(text.prompt);
    return tokenizer_->Decode(response ? ids.subspan(prompt) : ids.first(prompt));
  }

  TempFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(TextFiles, DollysRecords) {
  const Texts texts =
      Read("t.jsonl",
           "{\"id\": 3, \"instruction\": \"When did it begin to rain over there?\", \"context\": "
           "\"It rained at noon.\", \"response\": \"At noon it began.\"}\r\n\n"
           "{\"instruction\": \"Why is the sky so blue today, I wonder?\", \"context\": \"\", "
           "\"response\": \"Because.\"}\n"
           "{\"instruction\": \"hi\", \"response\": \"ho\"}\n"
           "{\"prompt\": \"One two three four five six seven eight nine\", \"answer\": \" ten eleven\"}",
           {.shortest = 8});
  ASSERT_EQ(texts.texts.size(), 3u);
  EXPECT_EQ(texts.counts.used, 3);
  EXPECT_EQ(texts.counts.too_short, 1);
  EXPECT_THAT(TextOf(texts.texts[0], false), HasSubstr("over there?\n\nIt rained at noon.\n\n"));
  EXPECT_EQ(TextOf(texts.texts[0], true), "At noon it began.");
  EXPECT_THAT(TextOf(texts.texts[1], false), testing::EndsWith("I wonder?\n\n"));
  EXPECT_THAT(TextOf(texts.texts[2], true), HasSubstr("ten eleven"));
  EXPECT_EQ(texts.texts[0].tokens.front(), tokenizer_->bos());
}

TEST_F(TextFiles, LongTextsAreCutOrLeftOut) {
  const std::string words(400, 'w');
  const std::string record = "{\"prompt\": \"a b c d e f g h\", \"answer\": \" " + words + "\"}\n";
  const TextOptions roomy{.longest = 4096, .shortest = 2};
  const int64_t size = static_cast<int64_t>(Read("t.jsonl", record, roomy).texts[0].tokens.size());
  const Texts cut = Read("t.jsonl", record, {.longest = size - 5, .shortest = 2});
  EXPECT_EQ(static_cast<int64_t>(cut.texts[0].tokens.size()), size - 5);
  EXPECT_THAT(ErrorOf([&] { Read("t.jsonl", record, {.longest = size / 4, .shortest = 2}); }),
              HasSubstr("1 are longer than"));
}

TEST_F(TextFiles, PlainTextIsCutIntoPieces) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "word" + std::to_string(i) + " ";
  const Texts texts = Read("t.txt", text, {.longest = 100, .shortest = 16, .response = 10});
  ASSERT_GE(texts.texts.size(), 3u);
  for (size_t i = 0; i + 1 < texts.texts.size(); ++i) {
    EXPECT_EQ(texts.texts[i].tokens.size(), 100u);
    EXPECT_EQ(texts.texts[i].prompt, 90);
    EXPECT_EQ(texts.texts[i].tokens.front(), tokenizer_->bos());
  }
  EXPECT_EQ(Read("t.txt", text, {.limit = 2, .longest = 100}).texts.size(), 2u);
  EXPECT_EQ(Read("t.txt", "{\"prompt\": 3} " + text, {.longest = 100}).counts.too_long, 0);  // not JSON lines
}

TEST_F(TextFiles, HostileLines) {
  EXPECT_THAT(Refusal("{\"instruction\": \"a\"}"), AllOf(HasSubstr("t.jsonl:1"), HasSubstr("'output'")));
  EXPECT_THAT(Refusal("\n\n[1]"), AllOf(HasSubstr("t.jsonl:3"), HasSubstr("not an object")));
  EXPECT_THAT(Refusal("{\"instruction\": 3, \"response\": \"x\"}"),
              HasSubstr("'instruction' is not a string"));
  EXPECT_THAT(Refusal("{\"instruction\": \"a\", \"context\": [], \"response\": \"x\"}"),
              HasSubstr("'context'"));
  EXPECT_THAT(Refusal("{\"prompt\": \"a\", \"answer\": null}"), HasSubstr("has no 'answer'"));
  EXPECT_THAT(Refusal("{\"prompt\": \"a\", "), HasSubstr("t.jsonl:1"));
  EXPECT_THAT(Refusal(std::string(100000, '[')), HasSubstr("t.jsonl:1"));
  EXPECT_THAT(Refusal("{\"prompt\": \"a\", \"prompt\": \"b\", \"answer\": \"c\"}"), HasSubstr("t.jsonl:1"));
  EXPECT_THAT(Refusal(""), HasSubstr("no text to train on"));
  EXPECT_THAT(Refusal("{\"prompt\": \"a b c\", \"answer\": \"\"}"), HasSubstr("no text to train on"));
  // Neither UTF-8 nor JSON.
  EXPECT_NE(Refusal("{\"prompt\": \"\xff\xfe\", \"answer\": \"\xff\"}"), "no error");
  EXPECT_THAT(ErrorOf([&] { ReadTexts({folder_.Path("none")}, *tokenizer_, 100, {}); }), HasSubstr("none"));
  EXPECT_THAT(ErrorOf([&] { ReadTexts({folder_.path()}, *tokenizer_, 100, {}); }), HasSubstr(folder_.path()));
  EXPECT_THAT(
      ErrorOf([&] { ReadTexts({folder_.Write("v.txt", std::string(300, 'z'))}, *tokenizer_, 3, {}); }),
      HasSubstr("the model has 3"));
  EXPECT_THAT(ErrorOf([&] { Read("c.jsonl", "{}", {.chat = true}); }), HasSubstr("chat template"));
  EXPECT_EQ(
      Read("b.txt", std::string("\xff\x00\xc3", 3) + std::string(200, 'y'), {.shortest = 2}).counts.used, 1);
}

}  // namespace
}  // namespace coppice
