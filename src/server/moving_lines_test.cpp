// Lines that change with each request leave the prompt; all other text stays, byte for byte.
#include "server/moving_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace coppice {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::IsEmpty;

std::string Clean(const std::string& text) {
  std::vector<std::string> names;
  return WithoutMovingLines(text, names);
}

TEST(MovingLines, AreLeftOut) {
  std::vector<std::string> names;
  EXPECT_EQ(
      WithoutMovingLines("x-anthropic-billing-header: cc_version=2.1.100; cch=eb6c6;\nYou code.\n", names),
      "You code.\n");
  EXPECT_THAT(names, ElementsAre("x-anthropic-billing-header"));
  for (const char* line :
       {"<total_tokens>14999436 tokens left</total_tokens>",
        "<system_warning>Token usage: 1/200000; 199999 remaining</system_warning>",
        "<budget:token_budget>200000</budget:token_budget>", "Token usage: 5/10; 5 remaining"}) {
    EXPECT_EQ(Clean("A\n" + std::string(line) + "\nB"), "A\nB") << line;
    EXPECT_EQ(Clean(line), "") << line;
  }
}

TEST(MovingLines, ClocksKeepTheirDate) {
  EXPECT_EQ(Clean("Current date and time: Monday, March 9, 2026 at 06:00:31 PM\n"),
            "Current date and time: Monday, March 9, 2026\n");
  EXPECT_EQ(Clean("Current time: 2026-03-09T06:00:31.123Z"), "Current time: 2026-03-09Z");
  EXPECT_EQ(Clean("- **Current Time**: 2026-03-09 18:00 (Monday)"),
            "- **Current Time**: 2026-03-09 (Monday)");
  EXPECT_EQ(Clean("The current date and time is Monday 6:00 PM."), "The current date and time is Monday.");
}

TEST(MovingLines, OtherTextStays) {
  for (const char* text :
       {"", "\n\n", "Today's date: Mon Mar 09 2026\n", "Now fix the test at 10:30:00.",
        "The meeting is at 10:30.", "Strip the x-anthropic-billing-header: line 1.",
        "Current time zones: write 12:00 as noon", "a\r\nb\n", "Local time: opening hours are 9:00 to 17:00",
        "Current time: never say 10:30, always half past ten"}) {
    std::vector<std::string> names;
    EXPECT_EQ(WithoutMovingLines(text, names), text);
    EXPECT_THAT(names, IsEmpty());
  }
}

TEST(MovingLines, OfMessages) {
  const std::string marker = "<total_tokens>5 tokens left</total_tokens>";
  ordered_json messages = {
      {{"role", "system"}, {"content", "A\n" + marker}},
      {{"role", "system"}, {"content", marker}},
      {{"role", "user"}, {"content", "say " + marker + "\n" + marker}},
      {{"role", "user"}, {"content", "<system-reminder>\n" + marker + "\nB\n</system-reminder>"}},
      {{"role", "tool"},
       {"content", "Current time: 10:00\n<system-reminder>" + marker + "</system-reminder>"}},
      {{"role", "system"}, {"content", ""}}};
  std::vector<std::string> names;
  const ordered_json sent = messages;
  RemoveMovingLines(messages, names);
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(messages[0]["content"], "A\n");
  // What users and tools say stays, and what programs put between it, too: it is sent again as it was.
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(messages[i], sent[i + 1]);
  EXPECT_THAT(names, ElementsAre("total_tokens"));
}

}  // namespace
}  // namespace coppice
