// Which tokens of the model enter. Words and their choice against the authors' program:
// src/engine/word_classifier_test.cpp.
#include "policies/methods/llmlingua2.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policies/method_test_support.h"
#include "policies/registry.h"
#include "test_files.h"

namespace coppice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A word of one part.
ReadWord Word(size_t begin, size_t end, float keep, const std::string& text = "x") {
  return {.parts = {{.begin = begin, .end = end, .keep = keep, .text = text}}};
}

std::vector<int32_t> Entering(LlmLingua2Config config, const std::vector<std::string>& pieces,
                              const std::vector<ReadWord>& words) {
  const auto be = MakeBackend("reference", {});
  LlmLingua2Policy policy(std::move(config), pieces, [&] { return words; });
  return policy.Input(std::ssize(pieces), *be).ToRows();
}

TEST(LlmLingua2, ATokenStaysIfItHoldsAByteOfAWordThatStays) {
  // "Hello world. the end" behind a control token; "world" has two tokens, so it counts twice:
  // 0.05 0.1 0.2 0.8 0.8 0.9, of which percentile 51 is 0.53.
  const std::vector<std::string> pieces = {"", "Hello", " wor", "ld", ".", " the", " end"};
  const std::vector<ReadWord> words = {Word(0, 5, 0.9f), Word(5, 11, 0.8f), Word(11, 12, 0.1f, "."),
                                       Word(12, 16, 0.2f), Word(16, 20, 0.05f)};
  EXPECT_THAT(Entering({.keep = 0.5}, pieces, words), ElementsAre(0, 1, 2, 3, 6)) << "and the last token";
  EXPECT_THAT(Entering({.keep = 0.5, .force_ends = true}, pieces, words), ElementsAre(0, 1, 4, 6))
      << "the full stop counts 1, which moves the percentile above 0.8";
}

TEST(LlmLingua2, WhiteSpaceOfAWordKeepsNoTokenOfAnother) {
  // The word " b" begins with the last byte of the token "a ".
  EXPECT_THAT(
      Entering({.keep = 0.5}, {"a ", "b", "c"}, {Word(0, 1, 0.1f), Word(1, 3, 0.9f), Word(3, 4, 0.05f)}),
      ElementsAre(1, 2));
  // A token that two words share stays with either.
  EXPECT_THAT(Entering({.keep = 0.5}, {"a", "bc", "d"},
                       {Word(0, 1, 0.1f), Word(1, 2, 0.1f), Word(2, 3, 0.9f), Word(3, 4, 0.05f)}),
              ElementsAre(1, 2));
}

TEST(LlmLingua2, ATextWithoutWordsKeepsWhatAlwaysStays) {
  EXPECT_THAT(Entering({.keep = 0.5}, {"", "\n", "", " "}, {}), ElementsAre(0, 2, 3));
}

TEST(LlmLingua2, IdentityIsFree) {
  const auto be = MakeBackend("reference", {});
  LlmLingua2Policy policy({.keep = 1}, {"a", "b"}, []() -> std::vector<ReadWord> {
    ADD_FAILURE() << "asked";
    return {};
  });
  EXPECT_TRUE(policy.Input(2, *be).IsAll());
}

TEST(LlmLingua2, Registry) {
  const ModelShape shape = Llama8B();
  const std::vector<int32_t> prompt(2000, 1);
  std::string opened;
  MethodContext context{.shape = shape, .tokens = 2000, .prompt = prompt};
  EXPECT_THAT(MakePolicy("llmlingua2:model=m", context, {}).reason, HasSubstr("no tokenizer"));
  context.pieces = [] { return std::vector<std::string>(2000, " x"); };
  context.open_words = [&](const std::string& folder) -> WordReader {
    opened = folder;
    if (folder == "missing") throw Error("missing: cannot open");
    return [] { return std::vector<ReadWord>(); };
  };
  const PruneChoice choice = MakePolicy("llmlingua2:model=lingua", context, {});
  EXPECT_TRUE(choice.active);
  EXPECT_EQ(opened, "lingua");
  EXPECT_EQ(
      choice.spec,
      "llmlingua2:model=lingua,keep=0.5,force=none,digits=choose,repeated=keep,positions=compact,min=1024");
  EXPECT_TRUE(choice.policy->Facts().compact_positions);
  EXPECT_FALSE(
      MakePolicy("llmlingua2:model=m,positions=original", context, {}).policy->Facts().compact_positions);
  context.tokens = 1000;
  EXPECT_THAT(MakePolicy("llmlingua2:model=m", context, {}).reason, HasSubstr("1000 prompt tokens"));
  EXPECT_THAT(ErrorOf([&] { MakePolicy("llmlingua2:model=missing", context, {}); }), HasSubstr("missing"))
      << "at any length";
}

}  // namespace
}  // namespace coppice
