// Functions that a chat offers the model: their definitions and calls in a conversation.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/chat_prompt.h"

namespace coppice {

inline constexpr size_t kMaxTools = 256;  // definitions of a chat, and calls of a message

// A member of a function's object, beside its type: the model finds the definition in a message, so templates
// do not write it.
inline constexpr const char* kDefinedInMessages = "defined_in_messages";

// Checks definitions as OpenAI's API has them: [{"type": "function", "function": {"name", "description",
// "parameters"}}, ...]. Throws Error, naming `source`.
void CheckTools(const nlohmann::ordered_json& tools, const std::string& source);

// A message's calls, {"id", "type", "function": {"name", "arguments"}} each, as templates take them:
// arguments that are the text of a JSON object become that object, empty ones, null and none an empty object.
// Everything else stays as it was sent. Throws Error, naming `source` and the message.
nlohmann::ordered_json ParseToolCalls(const nlohmann::ordered_json& calls, size_t message,
                                      const std::string& source);

// For a template that does not know tools: the same conversation with definitions, calls and results written
// into the messages' texts, in the form ToolFormat::kHermes.
std::vector<ChatMessage> WithToolsAsText(std::vector<ChatMessage> messages,
                                         const nlohmann::ordered_json& tools);

}  // namespace coppice
