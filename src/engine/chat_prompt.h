// Prompts made of messages by the model's chat template, with the spans of tokens that no method may prune
// and the spans of the question.
#pragma once

#include <atomic>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/built_in_templates.h"
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
  OwnedJson<nlohmann::ordered_json> tool_calls =
      nlohmann::ordered_json::array();  // an assistant's, chat_tools.h
  // The message as it was sent, for the template: every member that is not null, in its order, but for
  // "protect" and "question". What "role", "content" and "tool_calls" hold in it has no effect.
  OwnedJson<nlohmann::ordered_json> members = nlohmann::ordered_json::object();
  bool has_content = true;  // false: the message was sent with none, or null
};

// Parses a JSON array of {"role", "content", "protect", "question", "tool_calls", ...}. "content" is a
// string, a list of parts {"type": "text", "text"}, or null; an assistant's message may lack it. The default
// of "protect" is true for the roles system and developer, else false; the default of "question" is false. A
// role is a word of up to 64 letters, digits, '_', '-' and '.'. Throws Error that names `source` and message.
std::vector<ChatMessage> ParseMessages(const nlohmann::ordered_json& list, const std::string& source);
// The same from a file.
std::vector<ChatMessage> ReadMessages(const std::string& path);

// The maximum number of protected messages, and of messages that are the question. EncodeChat() renders the
// chat once more for each of them: without a limit, a request of a hundred thousand short system messages
// would occupy its thread for days.
inline constexpr int64_t kMaxMarkedMessages = 64;

struct ChatPrompt {
  std::vector<int32_t> tokens;
  std::vector<PositionSpan> protected_spans = {};
  bool apart = false;  // Protection::apart: with PruneScope::kNew
  // For Request::question: the text of the messages with is_question, else of the last user message that is
  // not blank. Empty if there is no such message, or if the template changes the text of that last message.
  // With PruneScope::kNew, if results of tools follow that message, also the calls that they answer.
  std::vector<PositionSpan> question;
};

// What of a chat a method may prune. kAll: all but protected messages and definitions of tools. kNew: the
// long texts of users and tools behind the last answer, and nothing else (chat_scope.h). kAuto: kNew in a
// chat with tools, calls or results, else kAll.
enum class PruneScope { kAuto, kAll, kNew };

struct ChatOptions {
  bool add_special = true;  // add BOS if the template has not written it
  // More variables for the template. They override the standard ones ("add_generation_prompt": false).
  OwnedJson<nlohmann::ordered_json> variables = nlohmann::ordered_json::object();
  // The functions that the model may call, as CheckTools() takes them. A template that does not know tools
  // gets them in the system message. They are protected.
  OwnedJson<nlohmann::ordered_json> tools = nlohmann::ordered_json::array();
  // The answer continues the last message, which must end the chat.
  bool continue_final_message = false;
  // Whether the text of a control token in a message, such as "</s>", becomes that token. Otherwise it is
  // ordinary text and cannot end a turn.
  bool parse_messages = false;
  PruneScope scope = PruneScope::kAll;
  // EncodeChat() finds no spans in a chat of more tokens than this. A caller sets its largest prompt, since
  // it will refuse a longer one; a dense run needs no spans (0).
  int64_t span_limit = INT64_MAX;
  const std::atomic<bool>* cancelled = nullptr;  // may be null; when set, the functions below throw Cancelled
};

// The text of the messages, with a generation prompt. Messages are joined where the template refuses them as
// they are (chat_renderer.h). Throws Error if it refuses them then too.
std::string RenderChat(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer,
                       const ChatOptions& options = {});

// The text of RenderChat with its tokens.
EncodedText EncodeChatText(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer,
                           const ChatOptions& options = {});

// The tokens of RenderChat's text, and the spans of messages. The span of a protected message covers the
// tokens of its content and one token on either side; the span of a question covers only its content. Throws
// Error if the template fails, if it changes the text of a message with is_protected or is_question, or if
// more than kMaxMarkedMessages messages have one of these flags. With PruneScope::kNew everything but the
// tokens within new texts is protected, and so is a text that the template changes.
ChatPrompt EncodeChat(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer,
                      const ChatOptions& options = {});

}  // namespace coppice
