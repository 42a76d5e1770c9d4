#include "engine/chat_prompt.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "tensor/merge_spans.h"
#include "text/jinja/chat_template.h"

namespace coppice {

namespace {

struct Marks {
  std::string begin, end;
};

// Marks that no message holds: a character of a private use area, once more in a row than messages have it at
// all.
Marks FreeMarks(const std::vector<ChatMessage>& messages) {
  const std::string mark = "\ue000";
  std::string row = mark;
  for (const ChatMessage& m : messages) {
    for (size_t at = m.content.find(mark); at != std::string::npos;
         at = m.content.find(mark, at + mark.size()))
      row += mark;
  }
  return {row + "\ue001", row + "\ue002"};
}

class ChatRenderer {
 public:
  ChatRenderer(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer,
               const ChatOptions& options)
      : messages_(messages),
        template_(tokenizer.chat_template()),
        marks_(FreeMarks(messages)),
        cancelled_(options.cancelled) {
    for (const auto& [name, id] : {std::pair("bos_token", tokenizer.bos()), {"eos_token", tokenizer.eos()}}) {
      context_[name] = id ? tokenizer.Piece(*id, true) : std::string();
    }
    context_["add_generation_prompt"] = true;
    context_.update(*options.variables);
  }

  // The chat's text; `marked` names a message (or none, -1) whose text stands between marks.
  std::string Text(int marked) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (int i = 0; i < static_cast<int>(messages_.size()); ++i) {
      const ChatMessage& m = messages_[static_cast<size_t>(i)];
      list.push_back({{"role", m.role}, {"content", i == marked ? Marked(m.content) : m.content}});
    }
    context_["messages"] = list;
    return template_.Render(context_, cancelled_);
  }

  // Where the text of message `index` stands in `text`, the chat's; nowhere where the template changes it.
  // Begin and end are found by rendering the chat once more with marks: the message's words may stand
  // elsewhere, too.
  std::optional<std::pair<size_t, size_t>> Find(int index, const std::string& text) {
    std::string with = Text(index);
    const size_t begin = with.find(marks_.begin);
    if (begin != std::string::npos) with.erase(begin, marks_.begin.size());
    const size_t end = with.find(marks_.end);
    if (end != std::string::npos) with.erase(end, marks_.end.size());
    if (begin == std::string::npos || end == std::string::npos || end < begin || with != text)
      return std::nullopt;
    return std::pair(begin, end);
  }

 private:
  // White space stays outside: templates trim it.
  std::string Marked(const std::string& content) const {
    const char* space = " \t\r\n";
    const size_t begin = content.find_first_not_of(space);
    const size_t end = content.find_last_not_of(space) + 1;
    return content.substr(0, begin) + marks_.begin + content.substr(begin, end - begin) + marks_.end +
           content.substr(end);
  }

  const std::vector<ChatMessage>& messages_;
  ChatTemplate template_;
  Marks marks_;
  const std::atomic<bool>* cancelled_;
  nlohmann::ordered_json context_;
};

// A string, or the text of the parts that clients send in its place.
std::string ContentText(const nlohmann::json& content, size_t message, const std::string& source) {
  if (content.is_string()) return content;
  if (!content.is_array()) throw Error("{}: message {} needs the strings role and content", source, message);
  std::string text;
  for (const nlohmann::json& part : content) {
    if (!part.is_object() || part.value("type", nlohmann::json()) != "text" || !part.contains("text") ||
        !part["text"].is_string()) {
      throw Error("{}: message {}: only parts of the type text can be read", source, message);
    }
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

bool IsBlank(const std::string& text) { return text.find_first_not_of(" \t\r\n") == std::string::npos; }

// A field of a message that is true or false.
bool Flag(const nlohmann::json& message, const char* name, bool fallback, size_t number,
          const std::string& source) {
  if (!message.contains(name)) return fallback;
  if (!message[name].is_boolean())
    throw Error("{}: message {}: {} is not true or false", source, number, name);
  return message[name].get<bool>();
}

bool IsProtected(const ChatMessage& message) { return message.is_protected && !IsBlank(message.content); }
bool IsQuestion(const ChatMessage& message) { return message.is_question && !IsBlank(message.content); }

void CheckMarked(const std::vector<ChatMessage>& messages) {
  if (std::ranges::count_if(messages, IsProtected) > kMaxMarkedMessages) {
    throw Error(
        "more than {} messages are protected, as those of the roles system and developer are: "
        "send \"protect\": false with some, or join them",
        kMaxMarkedMessages);
  }
  if (std::ranges::count_if(messages, IsQuestion) > kMaxMarkedMessages)
    throw Error("more than {} messages say \"question\": true", kMaxMarkedMessages);
}

// The last message of the user, where no message says that it is the question; -1 for none.
int ImpliedQuestion(const std::vector<ChatMessage>& messages) {
  if (std::ranges::any_of(messages, IsQuestion)) return -1;
  auto last = static_cast<int>(messages.size()) - 1;
  const auto asks = [](const ChatMessage& m) { return m.role == "user" && !IsBlank(m.content); };
  while (last >= 0 && !asks(messages[static_cast<size_t>(last)])) --last;
  return last;
}

}  // namespace

std::vector<ChatMessage> ParseMessages(const nlohmann::json& list, const std::string& source) {
  if (!list.is_array() || list.empty()) throw Error("{}: is not a JSON array of messages", source);
  std::vector<ChatMessage> messages;
  for (const nlohmann::json& item : list) {
    const size_t number = messages.size() + 1;
    if (!item.is_object() || !item.contains("role") || !item["role"].is_string() || !item.contains("content"))
      throw Error("{}: message {} needs the strings role and content", source, number);
    const std::string role = item["role"];
    const bool is_protected = Flag(item, "protect", role == "system" || role == "developer", number, source);
    messages.push_back({role, ContentText(item["content"], number, source), is_protected,
                        Flag(item, "question", false, number, source)});
  }
  return messages;
}

std::vector<ChatMessage> ReadMessages(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in.is_open() || in.bad()) throw Error("{}: cannot read: {}", path, std::strerror(errno));
  return ParseMessages(nlohmann::json::parse(text, nullptr, false), path);
}

// ---- Tokens
namespace {

EncodedText EncodeRendered(std::string text, const Tokenizer& tokenizer, const ChatOptions& options) {
  // Templates that write BOS themselves must not get a second one.
  const std::string bos = tokenizer.bos() ? tokenizer.Piece(*tokenizer.bos(), true) : std::string();
  const bool has_bos = !bos.empty() && text.starts_with(bos);
  return {std::move(text),
          tokenizer,
          {.add_special = options.add_special && !has_bos,
           .parse_special = true,
           .cancelled = options.cancelled}};
}

}  // namespace

std::string RenderChat(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer,
                       const ChatOptions& options) {
  return ChatRenderer(messages, tokenizer, options).Text(-1);
}

EncodedText EncodeChatText(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer,
                           const ChatOptions& options) {
  return EncodeRendered(RenderChat(messages, tokenizer, options), tokenizer, options);
}

ChatPrompt EncodeChat(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer,
                      const ChatOptions& options) {
  ChatRenderer renderer(messages, tokenizer, options);
  const EncodedText text = EncodeRendered(renderer.Text(-1), tokenizer, options);
  ChatPrompt prompt{text.tokens(), {}, {}};
  const auto count = static_cast<int64_t>(prompt.tokens.size());
  if (count > options.span_limit) return prompt;
  CheckMarked(messages);
  const int implied = ImpliedQuestion(messages);
  for (int i = 0; i < static_cast<int>(messages.size()); ++i) {
    const ChatMessage& message = messages[static_cast<size_t>(i)];
    const bool is_protected = IsProtected(message);
    if (!is_protected && !IsQuestion(message) && i != implied) continue;
    const auto place = renderer.Find(i, text.text());
    if (!place && (is_protected || IsQuestion(message))) {
      throw Error("message {}: the chat template does not show its text as it is, so it cannot be {}", i + 1,
                  is_protected ? "protected; use protect_first" : "the question");
    }
    if (!place) continue;
    const PositionSpan span = text.Span(place->first, place->second);
    if (is_protected) {
      prompt.protected_spans.push_back(
          {std::max<int64_t>(span.begin - 1, 0), std::min<int64_t>(span.end + 1, count)});
    }
    if (IsQuestion(message) || i == implied) prompt.question.push_back(span);
  }
  prompt.question = MergeSpans(std::move(prompt.question));
  return prompt;
}

}  // namespace coppice
