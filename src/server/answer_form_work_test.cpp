// What compiling a form may cost, and who can end it.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "server/answer_form.h"
#include "server/errors.h"

namespace coppice {
namespace {

Parameters Asking(AnswerForm form, const std::string& text) {
  Parameters p;
  p.form = form;
  p.form_field = "grammar";
  p.form_text = text;
  return p;
}

std::string MessageOf(AnswerForms& forms, const Parameters& p) {
  try {
    forms.Compiled(p, {});
  } catch (const HttpError& error) {
    return error.fault().message;
  }
  return "";
}

const char* const kLarge = "root ::= [ab]* \"a\" [ab]{40}";  // more states than there may be

TEST(AnswerFormWork, SaysThatAGrammarIsTooLarge) {
  AnswerForms forms;
  for (int i = 0; i < 2; ++i) {  // the lock was given back
    EXPECT_NE(MessageOf(forms, Asking(AnswerForm::kGrammar, kLarge)).find("the grammar is too large"),
              std::string::npos);
  }
  EXPECT_NE(MessageOf(forms, Asking(AnswerForm::kRegex, std::string(300'000, '|'))).find("too large"),
            std::string::npos);
  EXPECT_EQ(MessageOf(forms, Asking(AnswerForm::kGrammar, "root ::= (\"\"{100000}){100000} \"a\"")), "");
}

TEST(AnswerFormWork, AClientThatLeavesEndsIt) {
  AnswerForms forms;
  const std::atomic<bool> cancelled{true};
  EXPECT_THROW(forms.Compiled(Asking(AnswerForm::kGrammar, kLarge), {}, &cancelled), Cancelled);
}

// Beside others' large compilations, which take turns. Without cancellation it would ask forever.
TEST(AnswerFormWork, AClientThatLeavesEndsItBesideOthers) {
  AnswerForms forms;
  std::atomic<bool> stop{false};
  std::atomic<int> begun{0};
  std::vector<std::future<void>> others;
  for (int i = 0; i < 4; ++i) {
    others.push_back(std::async(std::launch::async, [&] {
      while (!stop) {
        ++begun;
        try {
          forms.Compiled(Asking(AnswerForm::kGrammar, kLarge), {}, &stop);
        } catch (const HttpError&) {
        } catch (const Cancelled&) {
        }
      }
    }));
  }
  while (begun < 8) std::this_thread::yield();
  std::atomic<bool> left{false};
  auto waiting = std::async(std::launch::async, [&] {
    EXPECT_THROW(
        while (true) {
          try {
            forms.Compiled(Asking(AnswerForm::kGrammar, kLarge), {}, &left);
          } catch (const HttpError&) {
          }
        },
        Cancelled);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  left = true;
  EXPECT_EQ(waiting.wait_for(std::chrono::minutes(1)), std::future_status::ready);
  stop = true;
}

}  // namespace
}  // namespace coppice
