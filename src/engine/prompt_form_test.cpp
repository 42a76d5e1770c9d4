#include "engine/prompt_form.h"

#include <gtest/gtest.h>

#include <string>

namespace coppice {
namespace {

TEST(PromptForm, MarkedTextIsAQuestionUnlessItAsksForTheWholeText) {
  for (const char* asked : {"Who made the experiment?", "Name a town.", "What does it say about a prism?",
                            "Where did the river continue?", "Wie hei\xc3\x9ft der Hafen?",
                            "Find the cause and give its file.", ""})
    EXPECT_EQ(FormOf(asked, true), PromptForm::kQuestion) << asked;
  for (const char* asked :
       {"Summarize the text.", "Give a summary, please.", "TL;DR", "What is the text about?",
        "Please translate it to French.", "Rewrite the letter politely.", "Fasse den Text zusammen.",
        "List the main points.", "\xe8\xaf\xb7\xe5\x86\x99\xe6\x91\x98\xe8\xa6\x81"})
    EXPECT_EQ(FormOf(asked, true), PromptForm::kSummary) << asked;
  for (const char* asked : {"Continue the story.", "Now continue.", "Good. Go on."})
    EXPECT_EQ(FormOf(asked, true), PromptForm::kText) << asked;
}

TEST(PromptForm, UnmarkedTextNeedsAQuestionInItsLastLines) {
  for (const char* ending :
       {"so it was.\nQuestion: What is the secret code of the misty harbor?\nAnswer:",
        "so it was.\n\nWhat is the magic number for x in the text? The magic number for x in the text is",
        "so it was.\nName the town.\n",
        "so it was.\nKey: \"a\"\nCorresponding value:", "\xe6\x9c\x89\xe4\xbb\x80\xe4\xb9\x88\xef\xbc\x9f"})
    EXPECT_EQ(FormOf(ending, false), PromptForm::kQuestion) << ending;
  for (const char* ending :
       {"The ship had left the harbor, and the wind", "\"Where is he?\" said Anna. She",
        "Who was it?\nThe door opened.\nThe wind came in, and", "", "\n\n\n", "int main() {\n  return"})
    EXPECT_EQ(FormOf(ending, false), PromptForm::kText) << ending;
  EXPECT_EQ(FormOf("so it was.\nSummarize the text.", false), PromptForm::kSummary);
  EXPECT_EQ(FormOf("a summary\nof it\nby hand, and the wind", false), PromptForm::kText);
}

TEST(PromptForm, AnyBytesAreRead) {
  std::string text;
  for (int i = 0; i < 256; ++i) {
    text += static_cast<char>(i);
    FormOf(text, i % 2 == 0);
    FormOf(std::string(static_cast<size_t>(i), '\n') + "?", false);
  }
}

}  // namespace
}  // namespace coppice
