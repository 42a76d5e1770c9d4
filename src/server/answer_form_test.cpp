// Whose compiled forms serve whom.
#include "server/answer_form.h"

#include <gtest/gtest.h>

#include <string>

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
  const auto first = forms.Compiled(Asking(secret, kFirst), {});
  EXPECT_EQ(forms.Compiled(Asking(secret, kFirst), {}), first) << "compiled once";
  EXPECT_NE(forms.Compiled(Asking(secret, kSecond), {}), first) << "another key";
  EXPECT_NE(forms.Compiled(Asking(secret, {.key = 1, .salt = 5}), {}), first) << "another salt";
  EXPECT_NE(forms.Compiled(Asking(secret, {}), {}), first) << "no key";
  EXPECT_EQ(forms.Compiled(Asking(secret, kFirst), {}), first);
}

// What one key sends must not show in how long another one's requests take.
TEST(AnswerForms, OneKeyDoesNotTakeAnothersRoom) {
  AnswerForms forms;
  const auto kept = forms.Compiled(Asking("root ::= \"kept\"", kSecond), {});
  const std::string large(300'000, 'a');
  const auto first = forms.Compiled(Asking("root ::= \"0\" # " + large, kFirst), {});
  for (int i = 1; i < 80; ++i) {
    const PrefixOwner salted{.key = 1, .salt = static_cast<uint64_t>(i)};
    forms.Compiled(Asking("root ::= \"" + std::to_string(i) + "\" # " + large, salted), {});
  }
  EXPECT_NE(forms.Compiled(Asking("root ::= \"0\" # " + large, kFirst), {}), first) << "24 MB are too many";
  EXPECT_EQ(forms.Compiled(Asking("root ::= \"kept\"", kSecond), {}), kept);
}

}  // namespace
}  // namespace coppice
