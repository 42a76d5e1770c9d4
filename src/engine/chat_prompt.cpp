#include "engine/chat_prompt.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "engine/chat_renderer.h"
#include "engine/chat_scope.h"
#include "engine/chat_tools.h"
#include "tensor/merge_spans.h"

namespace coppice {

using nlohmann::ordered_json;

namespace {

// The text of a message's content, which is a string or a list of text parts. Parts become lines, as in
// llama.cpp.
std::string ContentText(const ordered_json& content, size_t message, const std::string& source) {
  if (content.is_string()) return content;
  if (!content.is_array()) throw Error("{}: message {} needs the strings role and content", source, message);
  std::string text;
  for (const ordered_json& part : content) {
    if (!part.is_object() || part.value("type", ordered_json()) != "text" || !part.contains("text") ||
        !part["text"].is_string()) {
      throw Error("{}: message {}: only parts of the type text can be read", source, message);
    }
    if (&part != &content.front()) text += '\n';
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

bool IsWord(std::string_view text) {
  const std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  return !text.empty() && text.size() <= 64 && text.find_first_not_of(letters) == text.npos;
}

bool IsBlank(const std::string& text) { return text.find_first_not_of(" \t\r\n") == std::string::npos; }

// A boolean field of a message.
bool Flag(const ordered_json& message, const char* name, bool fallback, size_t number,
          const std::string& source) {
  if (!message.contains(name)) return fallback;
  if (!message[name].is_boolean())
    throw Error("{}: message {}: {} is not true or false", source, number, name);
  return message[name].get<bool>();
}

bool IsProtected(const ChatMessage& message) { return message.is_protected && !IsBlank(message.content); }
bool IsQuestion(const ChatMessage& message) { return message.is_question && !IsBlank(message.content); }

void CheckMarked(const std::vector<ChatMessage>& messages, bool only_questions) {
  if (!only_questions && std::ranges::count_if(messages, IsProtected) > kMaxMarkedMessages) {
    throw Error(
        "more than {} messages are protected, as those of the roles system and developer are: "
        "send \"protect\": false with some, or join them",
        kMaxMarkedMessages);
  }
  if (std::ranges::count_if(messages, IsQuestion) > kMaxMarkedMessages)
    throw Error("more than {} messages say \"question\": true", kMaxMarkedMessages);
}

// The index of the last user message that is not blank; -1 if there is none, or if a message has is_question.
int LastAsking(const std::vector<ChatMessage>& messages) {
  if (std::ranges::any_of(messages, IsQuestion)) return -1;
  auto last = static_cast<int>(messages.size()) - 1;
  const auto asks = [](const ChatMessage& m) { return m.role == "user" && !IsBlank(m.content); };
  while (last >= 0 && !asks(messages[static_cast<size_t>(last)])) --last;
  return last;
}

// What the template sees of a message beside its role, content and calls, whose places are kept.
ordered_json MembersOf(const ordered_json& message) {
  ordered_json members = ordered_json::object();
  for (const auto& [key, value] : message.items()) {
    if (value.is_null() || key == "protect" || key == "question") continue;
    const bool is_elsewhere = key == "role" || key == "content" || key == "tool_calls";
    members[key] = is_elsewhere ? ordered_json::array() : value;
  }
  return members;
}

ChatMessage MessageOf(const ordered_json& item, size_t number, const std::string& source) {
  const auto member = [&](const char* name) {
    return item.is_object() && item.contains(name) ? item[name] : ordered_json();
  };
  const ordered_json role = member("role");
  const ordered_json calls = member("tool_calls");
  const bool has_calls = calls.is_array() && !calls.empty();
  if (!role.is_string() || !(item.contains("content") || has_calls || role == "assistant"))
    throw Error("{}: message {} needs the strings role and content", source, number);
  if (!IsWord(role.get_ref<const std::string&>())) {
    throw Error("{}: message {}: its role is not a word of 1 to 64 letters, digits, '_', '-' and '.'", source,
                number);
  }
  const bool is_protected = Flag(item, "protect", role == "system" || role == "developer", number, source);
  const ordered_json content = member("content");
  ChatMessage message{.role = role,
                      .content = content.is_null() ? "" : ContentText(content, number, source),
                      .is_protected = is_protected,
                      .is_question = Flag(item, "question", false, number, source),
                      .members = MembersOf(item),
                      .has_content = !content.is_null()};
  if (!calls.is_null()) message.tool_calls = ParseToolCalls(calls, number, source);
  return message;
}

}  // namespace

std::vector<ChatMessage> ParseMessages(const ordered_json& list, const std::string& source) {
  if (!list.is_array() || list.empty()) throw Error("{}: is not a JSON array of messages", source);
  std::vector<ChatMessage> messages;
  for (const ordered_json& item : list) messages.push_back(MessageOf(item, messages.size() + 1, source));
  return messages;
}

std::vector<ChatMessage> ReadMessages(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in.is_open() || in.bad()) throw Error("{}: cannot read: {}", path, std::strerror(errno));
  return ParseMessages(ParseOrderedJson(text, path), path);
}

// ---- Tokens
namespace {

// What the template gets: the messages and tools as they were sent, or, for a template that does not know
// tools, both as text.
struct ChatSource {
  std::vector<ChatMessage> rewritten;
  ChatOptions options;
  std::string definitions;  // those in the rewritten messages; empty if there are none

  const std::vector<ChatMessage>& messages(const std::vector<ChatMessage>& sent) const {
    return rewritten.empty() ? sent : rewritten;
  }
};

ChatSource SourceOf(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer,
                    const ChatOptions& options) {
  const std::string& chat_template = ChatTemplateOf(tokenizer, !options.tools->empty());
  const auto uses_tools = [](const ChatMessage& m) { return !m.tool_calls->empty(); };
  const auto knows = [&](const char* name) { return chat_template.find(name) != chat_template.npos; };
  ChatSource source{{}, options, {}};
  if ((options.tools->empty() || knows("tools")) &&
      (std::ranges::none_of(messages, uses_tools) || knows("tool_calls")))
    return source;
  source.rewritten = WithToolsAsText(messages, *options.tools);
  if (!options.tools->empty()) source.definitions = source.rewritten.front().content;
  source.options.tools = ordered_json::array();
  return source;
}

// The bytes of `text` between what it has in common with `without` at its beginning and at its end.
std::pair<size_t, size_t> Inserted(std::string_view text, std::string_view without) {
  const size_t most = std::min(text.size(), without.size());
  size_t front = 0;
  while (front < most && text[front] == without[front]) ++front;
  size_t back = 0;
  while (back < most - front && text[text.size() - 1 - back] == without[without.size() - 1 - back]) ++back;
  return {front, text.size() - back};
}

// The bytes of the chat's text that the definitions of tools are. Where the template refuses a chat without
// them, everything before the first message's text.
std::pair<size_t, size_t> Definitions(ChatRenderer& renderer) {
  const std::string& text = renderer.whole().text;
  try {
    return Inserted(text, renderer.TextWithoutTools());
  } catch (const Error&) {
    const MessageRange first = renderer.Find({0}).front();
    return {0, first ? first->first : text.size()};
  }
}

EncodedText EncodeRendered(RenderedChat chat, const Tokenizer& tokenizer, const ChatOptions& options) {
  // Templates that write BOS themselves must not get a second one.
  const std::string bos = tokenizer.bos() ? tokenizer.Piece(*tokenizer.bos(), true) : std::string();
  const bool has_bos =
      !bos.empty() && chat.text.starts_with(bos) && (chat.plain.empty() || chat.plain.front() >= bos.size());
  return {
      std::move(chat.text),
      tokenizer,
      {.add_special = options.add_special && !has_bos, .parse_special = true, .cancelled = options.cancelled},
      std::move(chat.plain)};
}

// Fills the spans of `prompt`, whose text is `text`, from the messages.
void AddMessageSpans(const std::vector<ChatMessage>& messages, ChatRenderer& renderer,
                     const EncodedText& text, ChatPrompt& prompt) {
  const auto count = static_cast<int64_t>(prompt.tokens.size());
  const int implied = LastAsking(messages);
  std::vector<int> wanted;
  for (int i = 0; i < static_cast<int>(messages.size()); ++i) {
    const ChatMessage& message = messages[static_cast<size_t>(i)];
    if (IsProtected(message) || IsQuestion(message) || i == implied) wanted.push_back(i);
  }
  const std::vector<MessageRange> places = renderer.Find(wanted);
  for (size_t at = 0; at < wanted.size(); ++at) {
    const int i = wanted[at];
    const ChatMessage& message = messages[static_cast<size_t>(i)];
    const bool is_protected = IsProtected(message);
    const MessageRange& place = places[at];
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
}

// Fills the spans of `prompt` for PruneScope::kNew. `sent`: the messages as they were sent, which say what is
// a result; the rendered ones may have one more in front.
class NewScope {
 public:
  NewScope(const std::vector<ChatMessage>& sent, const std::vector<ChatMessage>& rendered,
           const ChatOptions& options, ChatRenderer& renderer, const EncodedText& text)
      : sent_(sent),
        offset_(static_cast<int>(rendered.size() - sent.size())),
        fresh_(NewMessages(sent, options.continue_final_message)),
        renderer_(renderer),
        text_(text) {
    for (int i = 0; i < static_cast<int>(sent.size()); ++i) {
      if (IsQuestion(sent[static_cast<size_t>(i)])) asking_.push_back(i);
    }
    if (asking_.empty()) implied_ = QuestionOf(sent, options.continue_final_message);
    wanted_ = fresh_;
    wanted_.insert(wanted_.end(), asking_.begin(), asking_.end());
    // What stands around calls says where the template writes them.
    for (const int i : {implied_.user, implied_.call - 1, implied_.call, implied_.call + 1}) {
      if (i >= 0 && (i == implied_.user || implied_.call >= 0)) wanted_.push_back(i);
    }
    std::ranges::sort(wanted_);
    wanted_.erase(std::ranges::unique(wanted_).begin(), wanted_.end());
    std::vector<int> indices;
    for (const int i : wanted_) indices.push_back(i + offset_);
    ranges_ = renderer_.Find(indices);
  }

  void Fill(ChatPrompt& prompt) const {
    std::vector<PositionSpan> prunable;
    for (const int i : fresh_) {
      const MessageRange range = RangeOf(i);
      if (!range) continue;
      PositionSpan span = text_.Span(range->first, range->second);
      // The tokens at its ends may reach beyond it.
      span = {span.begin + 1, span.end - 1 - (i == implied_.user ? kQuestionEnd : 0)};
      if (span.end - span.begin >= kLeastPrunable) prunable.push_back(span);
    }
    prompt.apart = true;
    prompt.protected_spans = Outside(MergeSpans(std::move(prunable)), std::ssize(prompt.tokens));
    for (const int i : asking_) {
      const MessageRange range = RangeOf(i);
      if (!range) {
        throw Error("message {}: the chat template does not show its text as it is, so it cannot be {}",
                    i + 1, "the question");
      }
      prompt.question.push_back(text_.Span(range->first, range->second));
    }
    AddImplied(prompt.question);
    prompt.question = MergeSpans(std::move(prompt.question));
  }

 private:
  MessageRange RangeOf(int message) const {
    const auto at = std::ranges::lower_bound(wanted_, message);
    if (at == wanted_.end() || *at != message) return {};
    return ranges_[static_cast<size_t>(at - wanted_.begin())];
  }
  std::pair<size_t, size_t> BytesOf(int message) const {
    return RangeOf(message).value_or(std::pair<size_t, size_t>());
  }
  void AddImplied(std::vector<PositionSpan>& question) const {
    const auto [begin, end] = BytesOf(implied_.user);
    const auto [call_begin, call_end] = CallBytes();
    const bool calls = call_begin < call_end;
    const bool asks = begin < end && !(calls && implied_.is_far);
    if (asks) question.push_back(text_.Span(begin, end));
    if (!calls) return;
    PositionSpan call = text_.Span(call_begin, call_end);
    if (asks) call.begin = std::max(call.begin, call.end - kCallEnd);
    question.push_back(call);
  }
  std::pair<size_t, size_t> CallBytes() const {
    if (implied_.call < 0) return {};
    const MessageRange own = RangeOf(implied_.call);
    const MessageRange before = RangeOf(implied_.call - 1);
    const MessageRange after = RangeOf(implied_.call + 1);
    if (!after || !(own || before)) return {};
    return CallsIn(text_.text(), own ? own->first : before->second, after->first,
                   *sent_[static_cast<size_t>(implied_.call)].tool_calls);
  }

  const std::vector<ChatMessage>& sent_;
  int offset_;
  std::vector<int> fresh_;
  std::vector<int> asking_;
  ImpliedQuestion implied_;
  std::vector<int> wanted_;           // messages, ascending
  std::vector<MessageRange> ranges_;  // of these
  ChatRenderer& renderer_;
  const EncodedText& text_;
};

}  // namespace

std::string RenderChat(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer,
                       const ChatOptions& options) {
  const ChatSource source = SourceOf(messages, tokenizer, options);
  return ChatRenderer(source.messages(messages), tokenizer, source.options, source.definitions).whole().text;
}

EncodedText EncodeChatText(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer,
                           const ChatOptions& options) {
  const ChatSource source = SourceOf(messages, tokenizer, options);
  const ChatRenderer renderer(source.messages(messages), tokenizer, source.options, source.definitions);
  return EncodeRendered(renderer.whole(), tokenizer, options);
}

ChatPrompt EncodeChat(const std::vector<ChatMessage>& sent, const Tokenizer& tokenizer,
                      const ChatOptions& options) {
  const ChatSource source = SourceOf(sent, tokenizer, options);
  const std::vector<ChatMessage>& messages = source.messages(sent);
  ChatRenderer renderer(messages, tokenizer, source.options, source.definitions);
  const EncodedText text = EncodeRendered(renderer.whole(), tokenizer, options);
  ChatPrompt prompt;
  prompt.tokens = text.tokens();
  if (static_cast<int64_t>(prompt.tokens.size()) > options.span_limit) return prompt;
  const bool only_new =
      options.scope == PruneScope::kNew || (options.scope == PruneScope::kAuto && IsAgents(sent, options));
  CheckMarked(messages, only_new);
  if (only_new) {
    NewScope(sent, messages, options, renderer, text).Fill(prompt);
    return prompt;
  }
  AddMessageSpans(messages, renderer, text, prompt);
  if (!source.options.tools->empty()) {
    const auto [begin, end] = Definitions(renderer);
    if (begin < end) prompt.protected_spans.push_back(text.Span(begin, end));
  }
  return prompt;
}

}  // namespace coppice
