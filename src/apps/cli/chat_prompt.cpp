#include "apps/cli/chat_prompt.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/chat_template.h"

namespace coppice::cli {

namespace {

// Templates trim contents.
std::string Trimmed(const std::string& text) {
  const char* space = " \t\r\n";
  const size_t begin = text.find_first_not_of(space);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(space) + 1 - begin);
}

}  // namespace

std::vector<ChatMessage> ReadMessages(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in.is_open() || in.bad()) throw Error("{}: cannot read: {}", path, std::strerror(errno));
  const nlohmann::json list = nlohmann::json::parse(text, nullptr, false);
  if (!list.is_array() || list.empty()) throw Error("{}: is not a JSON array of messages", path);
  std::vector<ChatMessage> messages;
  for (const nlohmann::json& item : list) {
    const size_t number = messages.size() + 1;
    const auto is_string = [&](const char* key) {
      return item.is_object() && item.contains(key) && item[key].is_string();
    };
    if (!is_string("role") || !is_string("content"))
      throw Error("{}: message {} needs the strings role and content", path, number);
    if (item.contains("protect") && !item["protect"].is_boolean())
      throw Error("{}: message {}: protect is not true or false", path, number);
    const std::string role = item["role"];
    messages.push_back(
        {role, item["content"], item.value("protect", role == "system" || role == "developer")});
  }
  return messages;
}

ChatPrompt EncodeChat(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer,
                      bool add_special) {
  const auto piece = [&](std::optional<int32_t> id) {
    return id ? tokenizer.Piece(*id, true) : std::string();
  };
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ChatMessage& message : messages)
    list.push_back({{"role", message.role}, {"content", message.content}});
  const nlohmann::ordered_json context = {{"messages", list},
                                          {"add_generation_prompt", true},
                                          {"bos_token", piece(tokenizer.bos())},
                                          {"eos_token", piece(tokenizer.eos())}};
  const std::string text = ChatTemplate(tokenizer.chat_template()).Render(context);
  // Templates that write BOS themselves must not get a second one.
  const std::string bos = piece(tokenizer.bos());
  const bool has_bos = !bos.empty() && text.compare(0, bos.size(), bos) == 0;
  const auto encode = [&](const std::string& part) {
    return tokenizer.Encode(part, {.add_special = add_special && !has_bos, .parse_special = true});
  };

  ChatPrompt prompt;
  prompt.tokens = encode(text);
  const auto count = static_cast<int64_t>(prompt.tokens.size());
  size_t cursor = 0;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string content = Trimmed(messages[i].content);
    const size_t begin = text.find(content, cursor);
    if (begin == std::string::npos) {
      if (!messages[i].is_protected) continue;
      throw Error(
          "message {}: the chat template does not show its text as it is, so it cannot be protected; use "
          "--protect-first",
          i + 1);
    }
    cursor = begin + content.size();
    if (!messages[i].is_protected) continue;
    const auto before = static_cast<int64_t>(encode(text.substr(0, begin)).size());
    const auto through = static_cast<int64_t>(encode(text.substr(0, cursor)).size());
    prompt.protected_spans.push_back(
        {std::max<int64_t>(before - 1, 0), std::min<int64_t>(through + 1, count)});
  }
  return prompt;
}

}  // namespace coppice::cli
