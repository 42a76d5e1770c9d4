// Which texts of a chat may be pruned where only what is new may be: an agent's system prompt, definitions of
// tools and earlier turns stay as they are, so that the document cache serves them at every turn.
#pragma once

#include <string>
#include <vector>

#include "engine/chat_prompt.h"

namespace coppice {

// Results and user messages of fewer tokens stay: they cost little, and the question is among them.
inline constexpr int64_t kLeastPrunable = 256;
// Of calls behind the user's text, so many last tokens are the question: methods score with the question's
// last 16 or so, and some of them must be the user's. Where results of earlier calls stand between, the calls
// alone are the question: with the user's text, every turn would read these results again.
inline constexpr int64_t kCallEnd = 8;
// The last tokens of a long user message stay, because a question stands at the end of a document.
inline constexpr int64_t kQuestionEnd = 64;

// Returns true for a chat in which PruneScope::kAuto is kNew: one with tools, calls or results.
bool IsAgents(const std::vector<ChatMessage>& messages, const ChatOptions& options);

// The messages whose texts are new: those of users and tools behind the last answer. Of more than
// kMaxMarkedMessages, the last. Neither messages with is_protected or is_question nor blank ones.
std::vector<int> NewMessages(const std::vector<ChatMessage>& messages, bool continues_last);

// The messages that the question consists of where none says that it does: the last user message that is not
// blank, and, if results of tools follow it, the answer that called them. -1: there is none.
struct ImpliedQuestion {
  int user = -1;
  int call = -1;
  bool is_far = false;  // results of earlier calls stand between the two
};
ImpliedQuestion QuestionOf(const std::vector<ChatMessage>& messages, bool continues_last);

// The bytes of text[begin, end) in which the template writes calls: from the first one's name to the last
// argument of the last one. {begin, begin} if it does not show them.
std::pair<size_t, size_t> CallsIn(const std::string& text, size_t begin, size_t end,
                                  const nlohmann::ordered_json& calls);

// What of [0, tokens) is outside `prunable`, whose spans ascend.
std::vector<PositionSpan> Outside(const std::vector<PositionSpan>& prunable, int64_t tokens);

}  // namespace coppice
