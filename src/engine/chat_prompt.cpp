#include "engine/chat_prompt.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "engine/chat_tools.h"
#include "tensor/merge_spans.h"
#include "text/jinja/chat_template.h"
#include "text/unicode/unicode.h"

namespace coppice {

namespace {

// Characters that occur in no message.
struct Marks {
  std::string begin, end;  // of a message's text, on both sides of its number; of the same length
  std::string plain;       // the byte after it is plain text, not part of a control token
};

// Characters of the supplementary private use areas, of which there are more than 131,000.
Marks FreeMarks(const std::vector<ChatMessage>& messages, const nlohmann::ordered_json& tools) {
  constexpr char32_t kFirst = 0xF0000;
  constexpr char32_t kLast = 0x10FFFD;
  std::vector<bool> used(kLast - kFirst + 1);
  const auto mark_used = [&](std::string_view text) {
    for (size_t at = text.find_first_of("\xF3\xF4"); at != text.npos;
         at = text.find_first_of("\xF3\xF4", at + 1)) {
      const char32_t code = DecodeUtf8(text, at).code;
      if (code >= kFirst && code <= kLast) used[code - kFirst] = true;
    }
  };
  ForEachText(tools, mark_used);
  for (const ChatMessage& m : messages) {
    mark_used(m.content);
    mark_used(m.tool_call_id);
    mark_used(m.name);
    ForEachText(*m.tool_calls, mark_used);
  }
  Marks marks;
  auto free = used.begin();
  for (std::string* mark : {&marks.begin, &marks.end, &marks.plain}) {
    free = std::find(free, used.end(), false);
    if (free == used.end()) throw Error("the messages hold every character of the private use areas");
    AppendUtf8(kFirst + static_cast<char32_t>(free++ - used.begin()), *mark);
  }
  return marks;
}

using MessageRange = std::optional<std::pair<size_t, size_t>>;  // of a message in the chat's text

struct Rendered {
  std::string text;
  std::vector<size_t> plain;  // as EncodeOptions::plain
};

// The name within a control token's written form: "im_start" of "<|im_start|>".
std::string_view NameWithin(std::string_view written) {
  const auto is_letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  while (!written.empty() && !is_letter(written.front())) written.remove_prefix(1);
  while (!written.empty() && !is_letter(written.back())) written.remove_suffix(1);
  return written;
}

// Templates put roles between the brackets of control tokens ("<|user|>"). A role must therefore not be the
// name of any other control token.
void CheckRoles(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer) {
  std::set<std::string_view> unusual;
  for (const ChatMessage& m : messages) {
    static const std::set<std::string_view> kUsual{"system",    "developer", "user", "human",
                                                   "assistant", "model",     "tool", "function"};
    if (!kUsual.contains(m.role)) unusual.insert(m.role);
  }
  if (unusual.empty()) return;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.IsControl(id)) continue;
    const std::string written = tokenizer.Piece(id, true);
    const auto found = unusual.find(NameWithin(written));
    if (found != unusual.end())
      throw Error("the role {} is the name of the control token {}", *found, written);
  }
}

class ChatRenderer {
 public:
  ChatRenderer(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer,
               const ChatOptions& options)
      : messages_(messages),
        template_(ChatTemplateOf(tokenizer)),
        knows_developer_(ChatTemplateOf(tokenizer).find("developer") != std::string::npos),
        marks_(FreeMarks(messages, *options.tools)),
        cancelled_(options.cancelled) {
    if (!options.parse_messages) CheckRoles(messages, tokenizer);
    const auto plain = [&](const std::string& text) {
      return options.parse_messages ? text : Plain(text, tokenizer);
    };
    for (const ChatMessage& m : messages) {
      ThrowIfCancelled(cancelled_);
      contents_.push_back(plain(m.content));
      more_.push_back(nlohmann::ordered_json::object());
      if (!m.tool_calls->empty()) more_.back()["tool_calls"] = WithTexts(*m.tool_calls, plain);
      if (!m.tool_call_id.empty()) more_.back()["tool_call_id"] = plain(m.tool_call_id);
      if (!m.name.empty()) more_.back()["name"] = plain(m.name);
    }
    if (!options.tools->empty()) context_["tools"] = WithTexts(*options.tools, plain);
    for (const auto& [name, id] : {std::pair("bos_token", tokenizer.bos()), {"eos_token", tokenizer.eos()}}) {
      context_[name] = id ? tokenizer.Piece(*id, true) : std::string();
    }
    context_["add_generation_prompt"] = true;
    context_.update(*options.variables);
  }

  // Changes the chat's text so that it ends where the answer begins.
  Rendered Ended(Rendered whole, const ChatOptions& options) {
    if (options.continue_final_message) {
      const MessageRange last = Find({static_cast<int>(messages_.size()) - 1}, whole.text).front();
      if (!last)
        throw Error("the chat template does not show the last message as it is, so it cannot be continued");
      whole.text.resize(last->second);
      std::erase_if(whole.plain, [&](size_t at) { return at >= whole.text.size(); });
    }
    return whole;
  }

  // The chat's text. The texts of the messages `marked`, in ascending order, are put between marks.
  Rendered Text(const std::vector<int>& marked) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (int i = 0; i < static_cast<int>(messages_.size()); ++i) {
      const std::string& content = contents_[static_cast<size_t>(i)];
      const auto place = std::ranges::lower_bound(marked, i);
      const bool is_marked = place != marked.end() && *place == i;
      list.push_back({{"role", RoleInTemplate(messages_[static_cast<size_t>(i)].role)},
                      {"content", is_marked ? Marked(content, place - marked.begin()) : content}});
      list.back().update(more_[static_cast<size_t>(i)]);
    }
    context_["messages"] = list;
    return WithoutPlainMarks(template_.Render(context_, cancelled_));
  }

  // The ranges of the messages `indices` in the chat's text `text`; nullopt for a message that the template
  // changes. Renders the chat once more, with marks around the messages, because the same words may occur
  // elsewhere too. If marks change what the template writes elsewhere, renders once for each message.
  std::vector<MessageRange> Find(const std::vector<int>& indices, const std::string& text) {
    std::vector<MessageRange> ranges(indices.size());
    if (indices.empty() || FindMarked(indices, text, ranges) || indices.size() == 1) return ranges;
    for (size_t i = 0; i < indices.size(); ++i) {
      std::vector<MessageRange> one(1);
      FindMarked({indices[i]}, text, one);
      ranges[i] = one.front();
    }
    return ranges;
  }

 private:
  // Fills `ranges` from one rendering. Returns false, with nothing found, if it differs from `text` in more
  // than its marks.
  bool FindMarked(const std::vector<int>& indices, const std::string& text,
                  std::vector<MessageRange>& ranges) {
    const std::string with = Text(indices).text;
    std::string plain;
    std::vector<std::vector<size_t>> begins(indices.size()), ends(indices.size());
    for (size_t at = 0; at < with.size();) {
      const bool begin = with.compare(at, marks_.begin.size(), marks_.begin) == 0;
      if (!begin && with.compare(at, marks_.end.size(), marks_.end) != 0) {
        plain += with[at++];
        continue;
      }
      const size_t number_end = with.find(begin ? marks_.begin : marks_.end, at + 1);
      size_t number = 0;
      at += marks_.begin.size();
      if (number_end == std::string::npos ||
          std::from_chars(with.data() + at, with.data() + number_end, number).ptr !=
              with.data() + number_end ||
          number >= indices.size())
        return false;
      (begin ? begins : ends)[number].push_back(plain.size());
      at = number_end + marks_.begin.size();
    }
    if (plain != text) return false;
    for (size_t i = 0; i < indices.size(); ++i) {
      if (begins[i].size() == 1 && ends[i].size() == 1 && begins[i].front() <= ends[i].front())
        ranges[i] = std::pair(begins[i].front(), ends[i].front());
    }
    return true;
  }

  // Puts the mark `plain` before each text that would be encoded as a control token.
  std::string Plain(const std::string& content, const Tokenizer& tokenizer) const {
    std::string marked;
    size_t done = 0;
    for (const size_t start : tokenizer.ControlStarts(content)) {
      marked.append(content, done, start - done);
      marked += marks_.plain;
      done = start;
    }
    return marked.append(content, done);
  }

  Rendered WithoutPlainMarks(const std::string& marked) const {
    Rendered rendered;
    size_t done = 0;
    for (size_t at = marked.find(marks_.plain); at != std::string::npos;
         at = marked.find(marks_.plain, done)) {
      rendered.text.append(marked, done, at - done);
      rendered.plain.push_back(rendered.text.size());
      done = at + marks_.plain.size();
    }
    rendered.text.append(marked, done);
    return rendered;
  }

  // Leaves white space at the ends outside the marks, because templates trim it.
  std::string Marked(const std::string& content, ptrdiff_t mark) const {
    const std::string number = std::to_string(mark);
    const char* space = " \t\r\n";
    const size_t begin = std::min(content.find_first_not_of(space), content.size());
    const size_t end = std::max(content.find_last_not_of(space) + 1, begin);  // npos + 1 is 0
    return content.substr(0, begin) + marks_.begin + number + marks_.begin +
           content.substr(begin, end - begin) + marks_.end + number + marks_.end + content.substr(end);
  }

  // OpenAI's clients say "developer" where most templates say "system".
  std::string RoleInTemplate(const std::string& role) const {
    return role == "developer" && !knows_developer_ ? "system" : role;
  }

  const std::vector<ChatMessage>& messages_;
  std::vector<std::string> contents_;         // with marks_.plain
  std::vector<nlohmann::ordered_json> more_;  // further members of each message, with marks_.plain
  ChatTemplate template_;
  bool knows_developer_;
  Marks marks_;
  const std::atomic<bool>* cancelled_;
  nlohmann::ordered_json context_;
};

// The text of a message's content, which is a string or a list of text parts. Parts become lines, as in
// llama.cpp.
std::string ContentText(const nlohmann::json& content, size_t message, const std::string& source) {
  if (content.is_string()) return content;
  if (!content.is_array()) throw Error("{}: message {} needs the strings role and content", source, message);
  std::string text;
  for (const nlohmann::json& part : content) {
    if (!part.is_object() || part.value("type", nlohmann::json()) != "text" || !part.contains("text") ||
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

// The index of the last user message that is not blank; -1 if there is none, or if a message has is_question.
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
    const nlohmann::json calls =
        item.is_object() ? item.value("tool_calls", nlohmann::json()) : nlohmann::json();
    const bool has_calls = calls.is_array() && !calls.empty();
    if (!item.is_object() || !item.contains("role") || !item["role"].is_string() ||
        !(item.contains("content") || has_calls))
      throw Error("{}: message {} needs the strings role and content", source, number);
    const std::string role = item["role"];
    if (!IsWord(role)) {
      throw Error("{}: message {}: its role is not a word of 1 to 64 letters, digits, '_', '-' and '.'",
                  source, number);
    }
    const bool is_protected = Flag(item, "protect", role == "system" || role == "developer", number, source);
    const nlohmann::json content = item.value("content", nlohmann::json());
    ChatMessage message{.role = role,
                        .content = content.is_null() && has_calls ? "" : ContentText(content, number, source),
                        .is_protected = is_protected,
                        .is_question = Flag(item, "question", false, number, source)};
    if (!calls.is_null()) message.tool_calls = ParseToolCalls(calls, number, source);
    for (auto [key, text] : {std::pair("tool_call_id", &message.tool_call_id), {"name", &message.name}}) {
      if (const nlohmann::json value = item.value(key, nlohmann::json()); value.is_string()) *text = value;
    }
    messages.push_back(std::move(message));
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

bool NeedsToolsAsText(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer,
                      const ChatOptions& options) {
  const std::string& chat_template = ChatTemplateOf(tokenizer);
  const auto uses_tools = [](const ChatMessage& m) { return !m.tool_calls->empty(); };
  return (!options.tools->empty() && chat_template.find("tools") == chat_template.npos) ||
         (std::ranges::any_of(messages, uses_tools) &&
          chat_template.find("tool_calls") == chat_template.npos);
}

ChatOptions WithoutTools(ChatOptions options) {
  options.tools = nlohmann::ordered_json::array();
  return options;
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

EncodedText EncodeRendered(Rendered chat, const Tokenizer& tokenizer, const ChatOptions& options) {
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

}  // namespace

std::string RenderChat(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer,
                       const ChatOptions& options) {
  if (NeedsToolsAsText(messages, tokenizer, options))
    return RenderChat(WithToolsAsText(messages, *options.tools), tokenizer, WithoutTools(options));
  ChatRenderer renderer(messages, tokenizer, options);
  return renderer.Ended(renderer.Text({}), options).text;
}

EncodedText EncodeChatText(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer,
                           const ChatOptions& options) {
  if (NeedsToolsAsText(messages, tokenizer, options))
    return EncodeChatText(WithToolsAsText(messages, *options.tools), tokenizer, WithoutTools(options));
  ChatRenderer renderer(messages, tokenizer, options);
  return EncodeRendered(renderer.Ended(renderer.Text({}), options), tokenizer, options);
}

ChatPrompt EncodeChat(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer,
                      const ChatOptions& options) {
  if (NeedsToolsAsText(messages, tokenizer, options))
    return EncodeChat(WithToolsAsText(messages, *options.tools), tokenizer, WithoutTools(options));
  ChatRenderer renderer(messages, tokenizer, options);
  const Rendered whole = renderer.Text({});
  const EncodedText text = EncodeRendered(renderer.Ended(whole, options), tokenizer, options);
  ChatPrompt prompt{text.tokens(), {}, {}};
  const auto count = static_cast<int64_t>(prompt.tokens.size());
  if (count > options.span_limit) return prompt;
  CheckMarked(messages);
  const int implied = ImpliedQuestion(messages);
  std::vector<int> wanted;
  for (int i = 0; i < static_cast<int>(messages.size()); ++i) {
    const ChatMessage& message = messages[static_cast<size_t>(i)];
    if (IsProtected(message) || IsQuestion(message) || i == implied) wanted.push_back(i);
  }
  const std::vector<MessageRange> places = renderer.Find(wanted, whole.text);
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
  if (!options.tools->empty()) {
    const Rendered without = ChatRenderer(messages, tokenizer, WithoutTools(options)).Text({});
    const auto [begin, end] = Inserted(whole.text, without.text);
    if (begin < std::min(end, text.text().size()))
      prompt.protected_spans.push_back(text.Span(begin, std::min(end, text.text().size())));
  }
  return prompt;
}

}  // namespace coppice
