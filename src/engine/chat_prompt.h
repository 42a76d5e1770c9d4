// Prompts made of messages, through the model's chat template, with the spans that no method may prune.
#pragma once

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

// A JSON array of {"role", "content", "protect"}; "protect" may be absent: the roles system and developer are
// protected then, others are not. Throws Error naming the file and the message.
std::vector<ChatMessage> ReadMessages(const std::string& path);

struct ChatPrompt {
  std::vector<int32_t> tokens;
  std::vector<Protection::Span> protected_spans;
};

// Renders the messages with a generation prompt and encodes the text. A protected message's span holds its
// content's tokens and one on either side, because tokens may straddle its ends. Throws Error where the
// template fails, or does not show a protected message's text as it is.
ChatPrompt EncodeChat(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer, bool add_special);

}  // namespace coppice
