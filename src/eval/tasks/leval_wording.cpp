#include "eval/tasks/leval_wording.h"

#include <algorithm>

#include "eval/data.h"

namespace coppice {

namespace {

// The string literal of Python that begins at text[at], a double quote; moves `at` behind it. Of escapes only
// those of the files.
std::string Literal(std::string_view text, size_t& at) {
  std::string value;
  for (++at; at < text.size() && text[at] != '"' && text[at] != '\n'; ++at) {
    const bool escaped = text[at] == '\\' && at + 1 < text.size();
    if (escaped) ++at;
    value += escaped && text[at] == 'n' ? '\n' : text[at];
  }
  if (at < text.size()) ++at;
  return value;
}

std::string FileText(const std::string& path) {
  std::string text;
  for (const std::string& line : ReadLines(path)) text += line + '\n';
  return text;
}

}  // namespace

std::string_view LEvalWording::System(std::string_view task) const {
  const auto find = [&](auto matches) -> std::string_view {
    const auto found = std::find_if(systems.begin(), systems.end(), matches);
    return found == systems.end() ? std::string_view() : std::string_view(found->second);
  };
  const std::string_view own =
      find([&](const auto& s) { return task.find(s.first) != std::string_view::npos; });
  return own.empty() ? find([](const auto& s) { return s.first == "exam"; }) : own;
}

LEvalWording ParseLEvalWording(std::string_view config, std::string_view program, const std::string& source) {
  constexpr std::string_view kFunction = "def get_sys_prompt";
  LEvalWording wording;
  size_t at = std::min(config.find(kFunction), config.size());
  std::string key;
  while (at < config.size()) {
    const size_t quote = config.find('"', at);
    if (quote == std::string_view::npos) break;
    const std::string_view before = config.substr(at, quote - at);
    at = quote;
    std::string text = Literal(config, at);
    if (before.find("if ") != std::string_view::npos) {
      key = std::move(text);
    } else if (before.find("else") != std::string_view::npos) {
      break;  // the prompt of open tasks
    } else if (!key.empty()) {
      wording.systems.emplace_back(std::move(key), std::move(text));
      key.clear();
    }
  }
  for (size_t place = program.find("context = \""); place != std::string_view::npos;
       place = program.find("context = \"", place)) {
    place = program.find('"', place);
    std::string text = Literal(program, place);
    const auto has = [&](const char* part) { return text.find(part) != std::string::npos; };
    if (has("{document}") && has("{inst}") && has("Question")) wording.question = std::move(text);
    if (!wording.question.empty()) break;
  }
  if (wording.System("coursera").empty() || wording.question.empty())
    throw Error("[eval] {}: holds no prompts in L-Eval's form", source);
  return wording;
}

std::optional<LEvalWording> FindLEvalWording(const TaskRequest& request) {
  try {
    const std::string config = FindDataFile(request, "leval", "Baselines", {"LEval_config.py"});
    const std::string program = FindDataFile(request, "leval", "Baselines", {"llama2-chat-test.py"});
    return ParseLEvalWording(FileText(config), FileText(program), config + " and " + program);
  } catch (const MissingData&) {
    return std::nullopt;
  }
}

}  // namespace coppice
