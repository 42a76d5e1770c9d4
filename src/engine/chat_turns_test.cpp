#include "engine/chat_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace coppice {
namespace {

using testing::ElementsAre;

// "user 0, assistant 1+2"
std::vector<std::string> Written(const std::vector<std::string>& roles, std::vector<bool> notes = {}) {
  std::vector<std::string> lines;
  notes.resize(roles.size());
  for (const std::vector<ChatTurn>& turns : Arrangements(roles, notes)) {
    std::string line;
    for (const ChatTurn& turn : turns) {
      line += (line.empty() ? "" : ", ") + turn.role;
      for (size_t i = 0; i < turn.messages.size(); ++i)
        line += (i == 0 ? " " : "+") + std::to_string(turn.messages[i]);
    }
    lines.push_back(line);
  }
  return lines;
}

TEST(ChatTurns, NothingToJoin) {
  EXPECT_THAT(Written({"user", "assistant", "user"}), ElementsAre("user 0, assistant 1, user 2"));
  EXPECT_THAT(Written({"tool", "tool"}), ElementsAre("tool 0, tool 1"));
  EXPECT_THAT(Written({}), ElementsAre(""));
}

TEST(ChatTurns, FromTheLeastChangeToTheLargest) {
  EXPECT_THAT(Written({"user", "user", "assistant", "developer", "user"}),
              ElementsAre("user 0, user 1, assistant 2, developer 3, user 4",
                          "user 0+1, assistant 2, developer 3, user 4",
                          "developer 3, user 0, user 1, assistant 2, user 4",
                          "developer 3, user 0+1, assistant 2, user 4", "user 3+0+1, assistant 2, user 4"));
  EXPECT_THAT(Written({"system", "user", "system", "user"}),
              ElementsAre("system 0, user 1, system 2, user 3", "system 0+2, user 1, user 3",
                          "system 0+2, user 1+3", "user 0+2+1+3"));
  EXPECT_THAT(Written({"system"}), ElementsAre("system 0", "user 0"));
  EXPECT_THAT(Written({"system", "assistant", "user"}),
              ElementsAre("system 0, assistant 1, user 2", "user 0, assistant 1, user 2"));
}

TEST(ChatTurns, NotesKeepTheirPlace) {
  EXPECT_THAT(Written({"system", "user", "system"}, {false, false, true}),
              ElementsAre("system 0, user 1, system 2", "system 0, user 1, user 2", "system 0, user 1+2",
                          "user 0+1+2", "system 0+2, user 1", "user 0+2+1"));
  // Before the conversation begins they are part of what it obeys.
  EXPECT_THAT(Written({"system", "system", "user"}, {true, true, false}),
              ElementsAre("system 0, system 1, user 2", "system 0+1, user 2", "user 0+1+2"));
}

TEST(ChatTurns, WhatANoteIs) {
  for (const char* text : {"<total_tokens>5 tokens left</total_tokens>", "\n<a>\nb <c> d\n</a>\n\n<e>f</e>\n",
                           "<budget:token_budget>1</budget:token_budget>", "<a></a>"})
    EXPECT_TRUE(IsNote(text)) << text;
  for (const char* text : {"", " \n", "Be terse.", "<a>b</a> and more", "and <a>b</a>", "<a>b", "<a>b</b>",
                           "<", "<>", "<></>", "<a", "< a>b</ a>", "<a b>c</a b>"})
    EXPECT_FALSE(IsNote(text)) << text;
}

}  // namespace
}  // namespace coppice
