#include "server/answer_form.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "grammar/grammar_test_support.h"
#include "server/errors.h"

namespace coppice {
namespace {

using nlohmann::ordered_json;

Parameters Calling(const std::string& parameters, bool strict = false) {
  Parameters p;
  p.tools = ordered_json::parse(fmt::format(
      R"([{{"type": "function", "function": {{"name": "f", "strict": {}, "parameters": {}}}}},
          {{"type": "function", "function": {{"name": "g", "parameters":
              {{"type": "object", "properties": {{"n": {{"type": "integer"}}}}, "required": ["n"]}}}}}}])",
      strict, parameters));
  p.tool_choice = ToolChoice::kAny;
  return p;
}

std::string Call(const char* name, const char* arguments) {
  return fmt::format(R"(<tool_call>{{"name": "{}", "arguments": {}}}</tool_call>)", name, arguments);
}

constexpr const char* kUnique =
    R"({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}, "uniqueItems": true}},
        "required": ["a"]})";

TEST(AnswerForm, AToolLosesOnlyTheKeywordAndTheReplySaysWhich) {
  AnswerForms forms;
  const CompiledForm form = forms.Compiled(Calling(kUnique), ToolFormat::kHermes);
  EXPECT_EQ(form.not_enforced, std::vector<std::string>{"tools.f: uniqueItems"});
  EXPECT_TRUE(Fits(form.automaton, Call("f", R"({"a": [1, 1]})")));
  EXPECT_FALSE(Fits(form.automaton, Call("f", R"({"a": ["x"]})")));
  EXPECT_FALSE(Fits(form.automaton, Call("f", "{}")));
  EXPECT_FALSE(Fits(form.automaton, Call("g", "{}")));
  // The same from the cache.
  EXPECT_EQ(forms.Compiled(Calling(kUnique), ToolFormat::kHermes).not_enforced, form.not_enforced);
}

TEST(AnswerForm, AStrictToolIsRefused) {
  AnswerForms forms;
  EXPECT_THROW(forms.Compiled(Calling(kUnique, true), ToolFormat::kHermes), HttpError);
}

TEST(AnswerForm, ResponseFormatsAreRefused) {
  AnswerForms forms;
  Parameters p;
  p.form = AnswerForm::kSchema;
  p.form_field = "response_format";
  p.form_value = ordered_json::parse(kUnique);
  EXPECT_THROW(forms.Compiled(p, std::nullopt), HttpError);
}

// Too many states: large lengths are given up, not the other functions' schemas.
TEST(AnswerForm, LargeLengthsDoNotLoseTheOthers) {
  std::string properties;
  for (int i = 0; i < 8; ++i)
    properties += fmt::format(R"({}"p{}": {{"type": "string", "maxLength": 90000}})", i > 0 ? ", " : "", i);
  AnswerForms forms;
  const CompiledForm form = forms.Compiled(
      Calling(R"({"type": "object", "properties": {)" + properties + "}}"), ToolFormat::kHermes);
  EXPECT_EQ(form.not_enforced, std::vector<std::string>{"tools.f: maxLength"});
  EXPECT_FALSE(Fits(form.automaton, Call("g", "{}")));
  EXPECT_FALSE(Fits(form.automaton, Call("f", R"({"p0": 1})")));
}

}  // namespace
}  // namespace coppice
