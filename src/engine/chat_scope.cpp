#include "engine/chat_scope.h"

#include <algorithm>

namespace coppice {

using nlohmann::ordered_json;

namespace {

bool SaysNothing(const std::string& text) { return text.find_first_not_of(" \t\r\n") == std::string::npos; }
bool IsResult(const ChatMessage& m) { return m.role == "tool" || m.role == "function"; }
bool IsAnswer(const ChatMessage& m) { return m.role == "assistant" || m.role == "model"; }
bool IsSystem(const ChatMessage& m) { return m.role == "system" || m.role == "developer"; }

// The last message that is an answer, but for one that the model is to continue; -1 if there is none.
int LastAnswer(const std::vector<ChatMessage>& messages, bool continues_last) {
  auto i = static_cast<int>(messages.size()) - (continues_last ? 2 : 1);
  while (i >= 0 && !IsAnswer(messages[static_cast<size_t>(i)])) --i;
  return i;
}

// The texts of a value that hold no others, in order, as a template may write them.
void AddLeaves(const ordered_json& value, std::vector<std::string>& leaves) {
  if (value.is_structured()) {
    for (const ordered_json& item : value) AddLeaves(item, leaves);
    return;
  }
  const std::string dumped = value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  if (!value.is_string()) {
    leaves.push_back(dumped);
    return;
  }
  leaves.push_back(value.get<std::string>());
  if (const std::string escaped = dumped.substr(1, dumped.size() - 2); escaped != leaves.back())
    leaves.push_back(escaped);
}

}  // namespace

bool IsAgents(const std::vector<ChatMessage>& messages, const ChatOptions& options) {
  return !options.tools->empty() || std::ranges::any_of(messages, [](const ChatMessage& m) {
    return IsResult(m) || !m.tool_calls->empty();
  });
}

std::vector<int> NewMessages(const std::vector<ChatMessage>& messages, bool continues_last) {
  std::vector<int> fresh;
  const auto count = static_cast<int>(messages.size());
  for (int i = LastAnswer(messages, continues_last) + 1; i < count; ++i) {
    const ChatMessage& m = messages[static_cast<size_t>(i)];
    if (IsAnswer(m) || IsSystem(m) || m.is_protected || m.is_question || SaysNothing(m.content)) continue;
    fresh.push_back(i);
  }
  if (std::ssize(fresh) > kMaxMarkedMessages) fresh.erase(fresh.begin(), fresh.end() - kMaxMarkedMessages);
  return fresh;
}

ImpliedQuestion QuestionOf(const std::vector<ChatMessage>& messages, bool continues_last) {
  ImpliedQuestion question;
  auto i = static_cast<int>(messages.size()) - 1;
  bool results = false;
  for (; i >= 0; --i) {
    const ChatMessage& m = messages[static_cast<size_t>(i)];
    results = results || IsResult(m);
    if (m.role == "user" && !SaysNothing(m.content)) break;
  }
  question.user = i;
  const int answer = LastAnswer(messages, continues_last);
  if (results && answer > i && !messages[static_cast<size_t>(answer)].tool_calls->empty())
    question.call = answer;
  for (int m = i + 1; m < question.call; ++m)
    question.is_far = question.is_far || IsResult(messages[static_cast<size_t>(m)]);
  return question;
}

std::pair<size_t, size_t> CallsIn(const std::string& text, size_t begin, size_t end,
                                  const ordered_json& calls) {
  const std::pair<size_t, size_t> none{begin, begin};
  if (calls.empty() || begin >= end) return none;
  const std::string_view where(text.data() + begin, end - begin);
  const size_t first = where.find(calls.front()["function"]["name"].get_ref<const std::string&>());
  if (first == where.npos) return none;
  const ordered_json& last = calls.back()["function"];
  std::vector<std::string> leaves{last["name"].get<std::string>()};
  AddLeaves(last["arguments"], leaves);
  // The last ones stand last: a few are looked for, because each search reads the text.
  constexpr size_t kMost = 16;
  size_t stop = first;
  for (size_t i = leaves.size(); i > 0 && leaves.size() - i < kMost; --i) {
    const std::string& leaf = leaves[i - 1];
    const size_t at = leaf.empty() ? where.npos : where.rfind(leaf);
    if (at != where.npos) stop = std::max(stop, at + leaf.size());
  }
  return stop > first ? std::pair{begin + first, begin + stop} : none;
}

std::vector<PositionSpan> Outside(const std::vector<PositionSpan>& prunable, int64_t tokens) {
  std::vector<PositionSpan> outside;
  int64_t done = 0;
  for (const PositionSpan& span : prunable) {
    if (done < span.begin) outside.push_back({done, span.begin});
    done = span.end;
  }
  if (done < tokens) outside.push_back({done, tokens});
  return outside;
}

}  // namespace coppice
