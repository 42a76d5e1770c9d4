#include "server/content_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "server/errors.h"
#include "server/request_json.h"

namespace coppice {

using nlohmann::ordered_json;

namespace {

using Names = std::vector<std::string>;

std::string Joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    if (line.empty()) continue;
    if (!text.empty()) text += '\n';
    text += line;
  }
  return text;
}

// A type or name that a client sent, short and in one line.
std::string Word(std::string text) {
  text = text.substr(0, 40);
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return text;
}

std::string LeftOut(const std::string& what, const char* why) {
  return fmt::format("[{} left out: {}]", what, why);
}

// Member() without a copy, which would be one for each level of parts within parts.
const ordered_json& At(const ordered_json& value, const char* name) {
  static const ordered_json kNone;
  if (!value.is_object()) return kNone;
  const auto found = value.find(name);
  return found == value.end() ? kNone : *found;
}

constexpr const char* kOnlyText = "this server reads text only";
constexpr const char* kNoTool = "this server has no such tool";

std::string Document(const ordered_json& part, const std::string& field, Names& ignored) {
  const ordered_json& source = At(part, "source");
  const std::string kind = TextMember(source, "type");
  std::vector<std::string> lines;
  if (const std::string title = TextMember(part, "title"); !title.empty()) lines.push_back(title);
  if (const std::string context = TextMember(part, "context"); !context.empty()) lines.push_back(context);
  if (kind == "text") {
    lines.push_back(TextMember(source, "data"));
  } else if (kind == "content") {
    lines.push_back(TextOfContent(At(source, "content"), field, ignored));
  } else {
    AddIgnored("document", ignored);
    lines.push_back(LeftOut("document", kOnlyText));
  }
  return Joined(lines);
}

std::string SearchResult(const ordered_json& part, const std::string& field, Names& ignored) {
  return Joined({TextMember(part, "title"), TextMember(part, "source"),
                 TextOfContent(At(part, "content"), field, ignored)});
}

constexpr const char* kReasoningMembers[] = {"reasoning_content", "reasoning", "thinking"};

const std::set<std::string, std::less<>> kTexts{"text", "input_text", "output_text", "summary_text"};
const std::set<std::string, std::less<>> kSilent{"thinking",       "redacted_thinking", "reasoning",
                                                 "reasoning_text", "compaction",        "cache_control",
                                                 "item_reference"};
const std::set<std::string, std::less<>> kMedia{
    "image", "image_url",   "input_image", "output_image", "audio",      "input_audio",      "audio_url",
    "file",  "input_video", "video",       "video_url",    "input_file", "container_upload", "image_file"};

}  // namespace

void AddIgnored(std::string_view name, Names& ignored) {
  const std::string shown(name.substr(0, 64));
  if (ignored.size() < kMaxIgnored && std::ranges::find(ignored, shown) == ignored.end())
    ignored.push_back(shown);
}

std::string TakeThoughts(ordered_json& content) {
  std::string thoughts;
  if (!content.is_array()) return thoughts;
  ordered_json rest = ordered_json::array();
  Names unread;
  for (ordered_json& part : content) {
    const std::string type = TextMember(part, "type");
    const bool is_thought = type == "thinking" || type == "reasoning";
    const ordered_json& texts = At(part, type == "thinking" ? "thinking" : "text");
    const std::string thought =
        is_thought && (texts.is_array() || texts.is_string()) ? TextOfContent(texts, "messages", unread) : "";
    if (thought.empty()) {
      rest.push_back(std::move(part));
      continue;
    }
    if (!thoughts.empty()) thoughts += "\n\n";
    thoughts += thought;
  }
  content = std::move(rest);
  return thoughts;
}

std::optional<std::string> TextOfPart(const ordered_json& part, const std::string& field, Names& ignored) {
  if (part.is_string()) return part.get<std::string>();
  const std::string type = TextMember(part, "type");
  if (!part.is_object() || type.empty())
    throw BadField(field, "has a part that is neither a text nor an object with a type");
  if (kTexts.contains(type)) {
    if (!part.contains("text") || !part["text"].is_string())
      throw BadField(field, fmt::format("has a part of the type {} without a text", type));
    return TextMember(part, "text");
  }
  if (type == "refusal") return TextMember(part, "refusal");
  if (type == "document") return Document(part, field, ignored);
  if (type == "search_result") return SearchResult(part, field, ignored);
  if (kSilent.contains(type)) {
    AddIgnored(type, ignored);
    return std::nullopt;
  }
  AddIgnored(type, ignored);
  if (kMedia.contains(type)) return LeftOut(Word(type), kOnlyText);
  if (type == "tool_reference") {
    const std::string name = Word(TextMember(part, "tool_name"));
    return name.empty() ? "[tool found]" : fmt::format("[tool found: {}]", name);
  }
  const std::string name = Word(TextMember(part, "name"));
  const std::string what = name.empty() ? Word(type) : fmt::format("{} {}", Word(type), name);
  // Results of a tool keep the texts that they hold.
  const ordered_json& content = At(part, "content");
  if (content.is_string() || content.is_array()) {
    const std::string text = TextOfContent(content, field, ignored);
    if (!text.empty()) return text;
  }
  return LeftOut(what, kNoTool);
}

std::string TextOfContent(const ordered_json& content, const std::string& field, Names& ignored) {
  if (content.is_null()) return "";
  if (content.is_string()) return content;
  if (content.is_object()) return TextOfPart(content, field, ignored).value_or("");
  if (!content.is_array()) throw BadField(field, "is neither a text nor a list of parts");
  std::string text;
  bool is_first = true;
  for (const ordered_json& part : content) {
    const std::optional<std::string> one = TextOfPart(part, field, ignored);
    if (!one) continue;
    if (!is_first) text += '\n';
    is_first = false;
    text += *one;
  }
  return text;
}

void SimplifyMessages(ordered_json& messages, Names& ignored) {
  if (!messages.is_array()) return;
  for (ordered_json& message : messages) {
    if (!message.is_object()) continue;  // what reads messages refuses it
    if (const auto content = message.find("content"); content != message.end()) {
      const std::string thought =
          TextMember(message, "role") == "assistant" ? TakeThoughts(*content) : std::string();
      if (content->is_array() || content->is_object())
        *content = TextOfContent(*content, "messages", ignored);
      const bool has_own = std::ranges::any_of(
          kReasoningMembers, [&](const char* name) { return !At(message, name).is_null(); });
      if (!thought.empty() && !has_own) message["reasoning_content"] = thought;
    }
    // OpenAI's clients send back what they got: a refusal is the answer's text.
    if (const std::string refusal = TextMember(message, "refusal"); !refusal.empty()) {
      if (Member(message, "content").is_null() || Member(message, "content") == "")
        message["content"] = refusal;
    }
    for (const char* key : {"refusal", "audio"}) {
      if (message.contains(key)) message.erase(key);
    }
    if (const ordered_json call = TakeMember(message, "function_call"); call.is_object() && !call.empty()) {
      if (!message.contains("tool_calls") || !message["tool_calls"].is_array())
        message["tool_calls"] = ordered_json::array();
      message["tool_calls"].push_back({{"type", "function"}, {"function", call}});
    }
    if (TextMember(message, "role") == "function") message["role"] = "tool";
  }
}

}  // namespace coppice
