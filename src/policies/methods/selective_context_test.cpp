#include "policies/methods/selective_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policies/method_test_support.h"
#include "policies/registry.h"
#include "test_files.h"

namespace coppice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> Pieces(std::initializer_list<const char*> list) {
  return {list.begin(), list.end()};
}

TEST(LexicalUnits, TokensAreTheirOwn) {
  EXPECT_THAT(LexicalUnits(Pieces({"a", " b", "c"}), LexicalUnit::kToken), ElementsAre(0, 1, 2));
}

TEST(LexicalUnits, SentencesEndAtFullStopsAndEmptyLines) {
  EXPECT_THAT(LexicalUnits(Pieces({"One", " 3.14", " two", ".", " Three", "?", "\n", "Four", "\n", "\n", "Fi",
                                   "ve\nsix"}),
                           LexicalUnit::kSentence),
              ElementsAre(0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3));
  // Full-width marks need no space: "\u3002" ends, "\uff0c" does not.
  EXPECT_THAT(
      LexicalUnits(Pieces({"\u6625", "\uff0c", "\u590f", "\u3002", "\u79cb"}), LexicalUnit::kSentence),
      ElementsAre(0, 0, 0, 0, 1));
}

TEST(LexicalUnits, PhrasesAreFunctionWordsAndWhatFollowsThem) {
  EXPECT_THAT(LexicalUnits(Pieces({"In", " the", " gar", "den", " of", " Mrs", " Price", ",", " The", " cat",
                                   " (", "black", ")", " sat", "\n", "down"}),
                           LexicalUnit::kPhrase),
              ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 3, 4, 4, 5));
  EXPECT_THAT(LexicalUnits(Pieces({"\u6625", "\uff0c", "\u590f", "\u3002", "\u79cb"}), LexicalUnit::kPhrase),
              ElementsAre(0, 0, 1, 1, 2));
  // No phrase is longer than eight words, and a cut inside a token moves to the next token.
  const std::vector<std::string> words(20, " word");
  const std::vector<int32_t> units = LexicalUnits(words, LexicalUnit::kPhrase);
  EXPECT_EQ(units[7], 0);
  EXPECT_EQ(units[8], 1);
  EXPECT_EQ(units[19], 2);
  EXPECT_THAT(LexicalUnits(Pieces({"end. Begin", " and", " so"}), LexicalUnit::kPhrase),
              ElementsAre(0, 1, 1));
}

// Units never fall, begin at 0 and leave none out, whatever the bytes and wherever tokens cut them.
TEST(LexicalUnits, AnyBytes) {
  uint32_t state = 1;
  const std::string alphabet = ".,;: \n\t\"()[]aTzo09'-\xe3\x80\x82\xef\xbc\x8c\xff";
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> pieces(1 + round % 40);
    for (std::string& piece : pieces) {
      state = state * 1664525 + 1013904223;
      for (uint32_t n = state >> 30; n > 0; --n) piece += alphabet[(state >> (5 * n)) % alphabet.size()];
    }
    for (const LexicalUnit unit : {LexicalUnit::kPhrase, LexicalUnit::kSentence}) {
      const std::vector<int32_t> units = LexicalUnits(pieces, unit);
      ASSERT_EQ(units.size(), pieces.size());
      ASSERT_EQ(units[0], 0);
      for (size_t i = 1; i < units.size(); ++i) {
        ASSERT_TRUE(units[i] == units[i - 1] || units[i] == units[i - 1] + 1) << i;
      }
    }
  }
}

TokenSet Choose(double keep, LexicalUnit unit, const std::vector<std::string>& pieces,
                std::vector<float> bits) {
  const auto be = MakeBackend("reference", {});
  SelectiveContextPolicy policy({.keep = keep, .unit = unit}, pieces, [&] { return bits; });
  return policy.Input(static_cast<int64_t>(pieces.size()), *be);
}

// Means of the phrases "the sky", "is blue", "of lead.", "No", in bits: 1.5, 4, 3.33 (three tokens), 6.
TEST(SelectiveContext, KeepsThePhrasesThatSayMost) {
  const auto pieces = Pieces({"the", " sky", " is", " blue", " of", " lead", ".", " No"});
  const std::vector<float> bits = {0, 3, 1, 7, 2, 7, 1, 6};
  const auto kept = [&](double keep) { return Choose(keep, LexicalUnit::kPhrase, pieces, bits).ToRows(); };
  EXPECT_THAT(kept(1), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(kept(0.75), ElementsAre(2, 3, 4, 5, 6, 7));
  EXPECT_THAT(kept(0.5), ElementsAre(2, 3, 7));
  EXPECT_THAT(kept(0.01), ElementsAre(7));
  EXPECT_THAT(Choose(0.3, LexicalUnit::kToken, pieces, bits).ToRows(), ElementsAre(3, 5, 7));
}

// Control tokens have no text, stay, and count in no mean; the last token stays.
TEST(SelectiveContext, ControlTokensAndTheLastStay) {
  const auto pieces = Pieces({"", "low", ".", " high", "", ".", " end"});
  const std::vector<float> bits = {0, 1, 1, 9, 0, 9, 0};
  EXPECT_THAT(Choose(0.3, LexicalUnit::kSentence, pieces, bits).ToRows(), ElementsAre(0, 3, 4, 5, 6));
}

// keep = 1 does not ask the second model.
TEST(SelectiveContext, IdentityIsFree) {
  const auto be = MakeBackend("reference", {});
  SelectiveContextPolicy policy({.keep = 1}, Pieces({"a", "b"}), []() -> std::vector<float> {
    ADD_FAILURE() << "asked";
    return {};
  });
  EXPECT_TRUE(policy.Input(2, *be).IsAll());
}

TEST(SelectiveContext, Registry) {
  const ModelShape shape = Llama8B();
  const std::vector<int32_t> prompt(2000, 1);
  std::string opened;
  MethodContext context{.shape = shape, .tokens = 2000, .prompt = prompt};
  const auto error = [&](const std::string& spec) { return ErrorOf([&] { MakePolicy(spec, context, {}); }); };
  EXPECT_THAT(MakePolicy("selective:model=m", context, {}).reason, HasSubstr("no tokenizer"));
  context.pieces = [] { return std::vector<std::string>(2000, " x"); };
  context.open_scorer = [&](const std::string& file) -> TokenScores {
    opened = file;
    if (file == "missing") throw Error("missing: cannot open");
    return [] { return std::vector<float>(2000, 1.0f); };
  };
  const PruneChoice choice = MakePolicy("selective:model=m.gguf", context, {});
  EXPECT_TRUE(choice.active);
  EXPECT_EQ(opened, "m.gguf");
  EXPECT_EQ(choice.spec, "selective:model=m.gguf,keep=0.65,unit=phrase,positions=compact,min=1024");
  EXPECT_TRUE(choice.policy->Facts().compact_positions);
  EXPECT_THAT(error("selective"), HasSubstr("model= is missing"));
  EXPECT_THAT(error("selective:model=missing"), HasSubstr("missing: cannot open"));
  EXPECT_THAT(error("selective:model=m,keep=0"), HasSubstr("keep"));
  EXPECT_THAT(error("selective:model=m,unit=word"), HasSubstr("unit"));
  context.tokens = 1000;
  EXPECT_THAT(MakePolicy("selective:model=m", context, {}).reason, HasSubstr("1000 prompt tokens"));
  EXPECT_THAT(error("selective:model=missing"), HasSubstr("missing"));  // at any length
}

}  // namespace
}  // namespace coppice
