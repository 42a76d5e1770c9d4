#include "grammar/token_filter.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "formats/json.h"
#include "grammar/gbnf.h"
#include "grammar/grammar_test_support.h"
#include "grammar/json_schema.h"

namespace coppice {
namespace {

// Tokens by their texts; the last ends answers, the one before it has no text.
class WordTokenizer final : public Tokenizer {
 public:
  explicit WordTokenizer(std::vector<std::string> words) : words_(std::move(words)) {}
  std::string_view kind() const override { return "words"; }
  int32_t vocab_size() const override { return static_cast<int32_t>(words_.size()) + 2; }
  std::vector<int32_t> Encode(std::string_view, const EncodeOptions&) const override { return {}; }
  std::vector<size_t> ControlStarts(std::string_view) const override { return {}; }
  std::string Piece(int32_t id, bool) const override {
    return id >= 0 && id < std::ssize(words_) ? words_[static_cast<size_t>(id)] : "";
  }
  std::string Decode(std::span<const int32_t>, bool) const override { return ""; }
  std::optional<int32_t> bos() const override { return std::nullopt; }
  std::optional<int32_t> eos() const override { return vocab_size() - 1; }
  bool EndsGeneration(int32_t id) const override { return id == vocab_size() - 1; }
  bool IsControl(int32_t id) const override { return id >= std::ssize(words_); }
  std::optional<int32_t> Find(std::string_view) const override { return std::nullopt; }
  const std::string& chat_template() const override { return template_; }
  void SetChatTemplate(std::string) override {}

 private:
  std::vector<std::string> words_;
  std::string template_;
};

TokenFilter FilterOf(std::shared_ptr<const Automaton> automaton, const Tokenizer& tokenizer,
                     std::vector<TokenGrammar::Mark> marks = {}, std::function<void()> rest = {}) {
  return TokenFilter(
      std::make_shared<const TokenGrammar>(TokenGrammar{
          std::move(automaton), std::make_shared<const TokenTexts>(tokenizer), std::move(marks)}),
      std::move(rest));
}

// An ambiguous grammar makes a mask long: others compute between its parts.
TEST(TokenFilterTest, LongMasksAreMadeInParts) {
  std::vector<std::string> texts;
  for (int i = 0; i < 200; ++i)
    texts.push_back(std::string(1, static_cast<char>('a' + i % 26)) + std::to_string(i));
  const WordTokenizer words(texts);
  const auto automaton = Compiled(ParseGbnf("root ::= s\ns ::= . s . | \"a\" s \"1\" | ."));
  int rests = 0;
  bool cancels = false;
  TokenFilter filter = FilterOf(automaton, words, {}, [&] {
    ++rests;
    if (cancels) throw Cancelled();
  });
  for (int i = 0; i < 60; ++i) filter.Accept(0);
  const std::vector<uint8_t> in_parts = filter.Mask();
  EXPECT_GT(rests, 5);
  TokenFilter at_once = FilterOf(automaton, words);
  for (int i = 0; i < 60; ++i) at_once.Accept(0);
  EXPECT_EQ(in_parts, at_once.Mask());
  cancels = true;
  filter.Accept(0);
  EXPECT_THROW(filter.Mask(), Cancelled);
}

TEST(TokenFilterTest, TokensMayCrossTheGrammarsParts) {
  const WordTokenizer words({"{", "{\"", "a", "\":", "\": ", "1", "12}", "}", "}x", "\xC3", "\xA4", "ab"});
  TokenFilter filter = FilterOf(Compiled(ParseGbnf(R"(root ::= "{\"" [aä] "\":" " "? [0-9]+ "}")")), words);
  const auto allowed = [&] {
    std::vector<int32_t> ids;
    for (int32_t id = -1; id <= words.vocab_size(); ++id) {
      if (filter.Allows(id)) ids.push_back(id);
    }
    return ids;
  };
  EXPECT_EQ(allowed(), (std::vector<int32_t>{0, 1}));
  filter.Accept(1);
  EXPECT_EQ(allowed(), (std::vector<int32_t>{2, 9}));  // 9: half of an a with dots
  filter.Accept(9);
  EXPECT_EQ(allowed(), (std::vector<int32_t>{10}));
  filter.Accept(10);
  EXPECT_EQ(allowed(), (std::vector<int32_t>{3, 4}));
  filter.Accept(4);
  EXPECT_EQ(allowed(), (std::vector<int32_t>{5, 6}));
  filter.Accept(5);
  EXPECT_EQ(allowed(), (std::vector<int32_t>{5, 6, 7}));
  EXPECT_FALSE(filter.done());
  filter.Accept(7);
  EXPECT_TRUE(filter.done());
  EXPECT_EQ(allowed(), (std::vector<int32_t>{words.vocab_size() - 1}));
}

TEST(TokenFilterTest, MarksHaveTheirWrittenForm) {
  const WordTokenizer words({"<", "call", ">", "x"});
  const int32_t mark = 4;  // without text
  TokenFilter filter =
      FilterOf(Compiled(ParseGbnf(R"(root ::= "<call>" "x" | "x")")), words, {{mark, "<call>"}});
  EXPECT_TRUE(filter.Allows(mark));
  EXPECT_EQ(filter.Mask()[mark], 1);
  filter.Accept(mark);
  EXPECT_FALSE(filter.Allows(mark));
  EXPECT_TRUE(filter.Allows(3));
  EXPECT_EQ(filter.Mask()[mark], 0);
}

// Along walks at random: the mask, which goes through the sorted vocabulary once, says of every token what a
// look at that token alone says.
TEST(TokenFilterTest, TheMaskIsEachTokensAnswer) {
  Random random(3);
  std::vector<std::string> texts;
  const std::string letters = "{}[]\":, \n\\abtruefalsn01u-.\xC3\xA4";
  for (const char c : letters) texts.emplace_back(1, c);
  for (int i = 0; i < 400; ++i) {
    std::string text;
    const auto size = 1 + static_cast<size_t>(random.Uniform() * 4);
    while (text.size() < size)
      text += letters[static_cast<size_t>(random.Uniform() * static_cast<double>(letters.size()))];
    texts.push_back(text);
  }
  const WordTokenizer words(texts);
  grammar::Rules rules;
  grammar::Expr root = AddJsonObject(rules);
  rules.root = rules.Add(std::move(root));
  const auto automaton = Compiled(rules);
  for (int walk = 0; walk < 20; ++walk) {
    TokenFilter filter = FilterOf(automaton, words);
    std::string text;
    for (int step = 0; step < 40 && !filter.done(); ++step) {
      const std::vector<uint8_t> mask = filter.Mask();
      std::vector<int32_t> allowed;
      for (int32_t id = 0; id < words.vocab_size(); ++id) {
        ASSERT_EQ(mask[static_cast<size_t>(id)] != 0, filter.Allows(id))
            << text << " | " << words.Piece(id, false);
        if (mask[static_cast<size_t>(id)] != 0) allowed.push_back(id);
      }
      ASSERT_FALSE(allowed.empty()) << text;
      const int32_t next =
          allowed[static_cast<size_t>(random.Uniform() * static_cast<double>(allowed.size()))];
      text += words.Piece(next, false);
      filter.Accept(next);
    }
    if (filter.done()) {
      EXPECT_NO_THROW(nlohmann::json::parse(text)) << text;
    }
  }
}

}  // namespace
}  // namespace coppice
