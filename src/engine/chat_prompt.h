// Prompts made of messages, through the model's chat template: which tokens no method may prune, and which
// are the question.
#pragma once

#include <atomic>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "formats/json.h"
#include "policies/compose.h"
#include "text/tokenizer/encoded_text.h"
#include "text/tokenizer/tokenizer.h"

namespace coppice {

struct ChatMessage {
  std::string role;
  std::string content;
  bool is_protected = false;
  bool is_question = false;
};

// A JSON array of {"role", "content", "protect", "question"}; "content" is a string or a list of parts
// {"type": "text", "text"}; "protect" may be absent: the roles system and developer are protected then,
// others are not; "question" is false where it is absent. A role is a word of up to 64 letters, digits, '_',
// '-' and '.'. Throws Error naming `source` and the message.
std::vector<ChatMessage> ParseMessages(const nlohmann::json& list, const std::string& source);
// The same from a file.
std::vector<ChatMessage> ReadMessages(const std::string& path);

// To find one message's tokens, the chat is rendered once more and encoded twice: without a limit, a request
// of a hundred thousand short system messages would keep its thread for days. So many messages may be
// protected, and as many may be the question.
inline constexpr int64_t kMaxMarkedMessages = 64;

struct ChatPrompt {
  std::vector<int32_t> tokens;
  std::vector<PositionSpan> protected_spans;
  // As Request::question: the text of the messages that say so, else of the user's last one that is not
  // blank. Empty where there is none, and where the template does not show the user's last text as it is.
  std::vector<PositionSpan> question;
};

struct ChatOptions {
  bool add_special = true;  // BOS, where the template has not written it
  // The template's own variables, beside those that it always has, or in their place
  // ("add_generation_prompt": false).
  OwnedJson<nlohmann::ordered_json> variables = nlohmann::ordered_json::object();
  // Whether the text of a control token in a message, such as "</s>", becomes that token. Otherwise it is
  // ordinary text and cannot end a turn.
  bool parse_messages = false;
  // EncodeChat() does not look for spans in a chat of more tokens: a caller that cannot serve one needs none,
  // and a dense run (0) neither.
  int64_t span_limit = INT64_MAX;
  const std::atomic<bool>* cancelled = nullptr;  // may be null; once it is set, all of these throw Cancelled
};

// The text of the messages, with a generation prompt. Throws Error where the template fails.
std::string RenderChat(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer,
                       const ChatOptions& options = {});

// That text with its tokens.
EncodedText EncodeChatText(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer,
                           const ChatOptions& options = {});

// The tokens of that text, and the spans of messages. A protected message's span holds its content's tokens
// and one on either side; the question's holds its content's tokens alone. Throws Error where the template
// fails, where it does not show the text of a message that says that it is protected or the question, and
// where more than kMaxMarkedMessages say either.
ChatPrompt EncodeChat(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer,
                      const ChatOptions& options = {});

}  // namespace coppice
