// What the next turn of a chat begins with: the conversation with the answer, as the template writes it back.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/parameters.h"
#include "server/tool_calls.h"

namespace coppice {

// A chat that was answered.
struct NextTurn {
  Parameters chat;                  // with its messages
  std::optional<ToolFormat> tools;  // the answer may call functions, in this form
  std::string calls_id;             // of the answer, for ToolCallId()
  bool empty_is_null = false;       // how the client writes back the content of an answer of calls only
};

struct TurnAnswer {
  std::shared_ptr<const NextTurn> turn;
  std::string text;     // as the model wrote it, calls too
  std::string thought;  // what it thought, if the reply tells that apart
};

// Whether the chat is a conversation that will probably go on, and ends with what the model answers.
bool MayGoOn(const Parameters& chat);

// The chat with the answer and what may follow it: results of its calls or a user's message, of which the
// first has the text `probe`. Null messages if the answer is empty.
Parameters WithNextMessage(const TurnAnswer& answer, const std::string& probe);

}  // namespace coppice
