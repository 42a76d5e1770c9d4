#include "policies/methods/head_patterns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "policies/method_test_support.h"
#include "policies/methods/minference.h"

namespace coppice {
namespace {

using testing::HasSubstr;

ModelShape TwoByTwo() {
  ModelShape shape = Llama8B();
  shape.layers.assign(2, {.heads = 2, .kv_heads = 1, .head_dim = 128, .ffn = 14336});
  return shape;
}

HeadPatterns Example() {
  HeadPatterns patterns{.model = "a \"b\".gguf", .tokens = 6000, .budget = 1024, .heads = {}};
  patterns.heads = {{{PatternKind::kVerticalSlash, 30, 100}, {PatternKind::kAShape, 205, 819}},
                    {{PatternKind::kBlockSparse, 24, 0}, {PatternKind::kVerticalSlash, 341, 600}}};
  return patterns;
}

std::string Refusal(const std::string& heads, const std::string& start = "") {
  const std::string before =
      start.empty() ? R"({"format":"coppice head patterns","version":1,"model":"m","tokens":9,"budget":9)"
                    : start;
  return ErrorOf([&] { ParseHeadPatterns(before + heads + "}", "h.json", TwoByTwo()); });
}

TEST(HeadPatterns, ReadsWhatItWrites) {
  const HeadPatterns read = ParseHeadPatterns(TextOf(Example()), "h.json", TwoByTwo());
  EXPECT_EQ(read.heads, Example().heads);
  EXPECT_EQ(read.model, Example().model);
  EXPECT_EQ(read.tokens, 6000);
  EXPECT_EQ(read.budget, 1024);
  EXPECT_EQ(read.LeastReach(), 130);
}

TEST(HeadPatterns, RefusesWhatIsNoFileOfPatterns) {
  const std::string two = R"([["a_shape",1,1],["a_shape",1,1]])";
  EXPECT_EQ(Refusal(R"(,"heads":[)" + two + "," + two + "]"), "no error");
  const std::pair<std::string, std::string> cases[] = {
      {"", "heads is missing"},
      {R"(,"heads":7)", "the model's 2 layers"},
      {R"(,"heads":[)" + two + "]", "the model's 2 layers"},
      {R"(,"heads":[)" + two + R"(,[["a_shape",1,1]]])", "heads[1] is no list of the model's 2 heads"},
      {R"(,"heads":[)" + two + R"(,[["a_shape",1,1],["b_shape",1,1]]])", "heads[1][1][0] is none of"},
      {R"(,"heads":[)" + two + R"(,[["a_shape",1,1],["a_shape",1]]])",
       "heads[1][1] has 1 sizes instead of 2"},
      {R"(,"heads":[)" + two + R"(,[["a_shape",1,1],["block_sparse",9,9]]])", "2 sizes instead of 1"},
      {R"(,"heads":[)" + two + R"(,[["a_shape",1,1],["block_sparse",1]]])", "from 2 to"},
      {R"(,"heads":[)" + two + R"(,[["a_shape",1,1],["vertical_slash",29,100]]])", "from 30 to"},
      {R"(,"heads":[)" + two + R"(,[["a_shape",1,1],["vertical_slash",30,99]]])", "from 100 to"},
      {R"(,"heads":[)" + two + R"(,[["a_shape",1,1],["a_shape",1.5,1]]])",
       "heads[1][1][1] is no whole number"},
      {R"(,"heads":[)" + two + R"(,[["a_shape",1,1],["a_shape",1,1e30]]])", "no whole number"},
      {R"(,"heads":[)" + two + R"(,[["a_shape",1,1],7]])", "heads[1][1] is no list"},
      {R"(,"heads":[)" + two + R"(,[["a_shape",1,1],[]]])", "heads[1][1] is no list"}};
  for (const auto& [heads, message] : cases) {
    EXPECT_THAT(Refusal(heads), HasSubstr(message)) << heads;
    EXPECT_THAT(Refusal(heads), HasSubstr("h.json")) << heads;
  }
  EXPECT_THAT(Refusal("", R"({"format":"x")"), HasSubstr("format"));
  EXPECT_THAT(Refusal("", R"({"format":"coppice head patterns","version":2)"), HasSubstr("version is not 1"));
  EXPECT_THAT(ErrorOf([] { ParseHeadPatterns("[]", "h.json", TwoByTwo()); }), HasSubstr("format"));
  EXPECT_THAT(ErrorOf([] { ParseHeadPatterns("{", "h.json", TwoByTwo()); }), HasSubstr("h.json"));
}

TEST(HeadPatterns, TheMethodReadsItsFile) {
  const TempFolder folder;
  const std::string path = folder.Path("heads.json");
  std::ofstream(path) << TextOf(Example());
  const MethodInfo method = MInferenceMethod();
  const std::string spec = "minference:heads=" + QuotedValue(path) + ",min=0";
  const MethodInstance made = MakeMethod(method, spec, TwoByTwo(), 131);
  EXPECT_EQ(made.reason, "");
  EXPECT_NE(made.policy, nullptr);
  EXPECT_THAT(MakeMethod(method, spec, TwoByTwo(), 130).reason, HasSubstr("covers 130"));
  EXPECT_THAT(ErrorOf([&] { MakeMethod(method, spec, Llama8B()); }), HasSubstr("the model's 32 layers"));
}

}  // namespace
}  // namespace coppice
