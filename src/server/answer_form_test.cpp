// What forms enforce, and whose compiled forms serve whom.
#include "server/answer_form.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "grammar/grammar_test_support.h"
#include "server/errors.h"

namespace coppice {
namespace {

Parameters Asking(const std::string& grammar, const PrefixOwner& owner) {
  Parameters p;
  p.form = AnswerForm::kGrammar;
  p.form_field = "grammar";
  p.form_text = grammar;
  p.owner = owner;
  return p;
}

const PrefixOwner kFirst{.key = 1};
const PrefixOwner kSecond{.key = 2};

TEST(AnswerForms, ServeTheirOwnerOnly) {
  AnswerForms forms;
  const std::string secret = "root ::= \"secret\"";
  const auto first = forms.Compiled(Asking(secret, kFirst), {}).automaton;
  EXPECT_EQ(forms.Compiled(Asking(secret, kFirst), {}).automaton, first) << "compiled once";
  EXPECT_NE(forms.Compiled(Asking(secret, kSecond), {}).automaton, first) << "another key";
  EXPECT_NE(forms.Compiled(Asking(secret, {.key = 1, .salt = 5}), {}).automaton, first) << "another salt";
  EXPECT_NE(forms.Compiled(Asking(secret, {}), {}).automaton, first) << "no key";
  EXPECT_EQ(forms.Compiled(Asking(secret, kFirst), {}).automaton, first);
}

// What one key sends must not show in how long another one's requests take.
TEST(AnswerForms, OneKeyDoesNotTakeAnothersRoom) {
  AnswerForms forms;
  const auto kept = forms.Compiled(Asking("root ::= \"kept\"", kSecond), {}).automaton;
  const std::string large(300'000, 'a');
  const auto first = forms.Compiled(Asking("root ::= \"0\" # " + large, kFirst), {}).automaton;
  for (int i = 1; i < 80; ++i) {
    const PrefixOwner salted{.key = 1, .salt = static_cast<uint64_t>(i)};
    forms.Compiled(Asking("root ::= \"" + std::to_string(i) + "\" # " + large, salted), {});
  }
  EXPECT_NE(forms.Compiled(Asking("root ::= \"0\" # " + large, kFirst), {}).automaton, first)
      << "24 MB are too many";
  EXPECT_EQ(forms.Compiled(Asking("root ::= \"kept\"", kSecond), {}).automaton, kept);
}

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
