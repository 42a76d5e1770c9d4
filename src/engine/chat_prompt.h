// Prompts made of messages, through the model's chat template, with the spans that no method may prune.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "policies/compose.h"
#include "text/tokenizer.h"

namespace coppice {

struct ChatMessage {
  std::string role;
  std::string content;
  bool is_protected = false;
};

// A JSON array of {"role", "content", "protect"}; "content" is a string or a list of parts {"type": "text", "text"};
// "protect" may be absent: the roles system and developer are protected then, others are not. Throws Error
// naming `source` and the message.
std::vector<ChatMessage> ParseMessages(const nlohmann::json& list, const std::string& source);
// The same from a file.
std::vector<ChatMessage> ReadMessages(const std::string& path);

// To find one message's tokens, the chat is rendered once more and encoded twice: without a limit, a request of a
// hundred thousand short system messages would keep its thread for days.
inline constexpr int64_t kMaxProtectedMessages = 64;

struct ChatPrompt {
  std::vector<int32_t> tokens;
  std::vector<Protection::Span> protected_spans;
};

// The text of the messages, with a generation prompt. `variables` are the template's own, beside those that it always
// has, or in their place ("add_generation_prompt": false). Throws Error where the template fails.
std::string RenderChat(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer,
                       const nlohmann::ordered_json& variables = nlohmann::ordered_json::object());

// Renders the messages and encodes the text. A protected message's span holds its
// content's tokens and one on either side, because tokens may straddle its ends. Throws Error where the
// template fails, or does not show a protected message's text as it is, or where more than kMaxProtectedMessages are
// protected. Of a chat of more than `most_tokens`, which cannot be served, the spans are not looked for.
ChatPrompt EncodeChat(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer, bool add_special,
                      const nlohmann::ordered_json& variables = nlohmann::ordered_json::object(),
                      int64_t most_tokens = INT64_MAX);

}  // namespace coppice
