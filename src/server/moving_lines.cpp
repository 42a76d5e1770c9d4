#include "server/moving_lines.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace coppice {

namespace {

using json = nlohmann::ordered_json;

constexpr std::string_view kSpace = " \t\r\n";

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return lower;
}

// A line that is left out if it begins with `begin`, ends with `end` and holds `within` (in lower case). The
// fixed words around a number, so that prose that merely speaks of such a line stays.
struct MovingLine {
  std::string_view name;
  std::string_view begin, within, end;
};

constexpr MovingLine kLines[] = {
    // Claude Code from 2.1.29 on: a hash of the request, in the first block of `system`.
    {"x-anthropic-billing-header", "x-anthropic-billing-header:", "", ""},
    // Claude Code: what is left of the context or of the budget, behind the system prompt or after each tool.
    {"total_tokens", "<total_tokens>", "", "</total_tokens>"},
    {"token_budget", "<budget:token_budget>", "", "</budget:token_budget>"},
    {"token_usage", "<system_warning>", "token usage:", "</system_warning>"},
    {"token_usage", "token usage:", "remaining", ""},
};

// Words before a time of day. Clients: pi ("Current date and time: Monday, March 9, 2026 at 06:00:31 PM"),
// AnythingLLM ("The current date and time is ..."), nanobot ("Current Time"), Open WebUI's variables.
constexpr std::string_view kClocks[] = {"current time",
                                        "current date and time",
                                        "current date/time",
                                        "current datetime",
                                        "current_datetime",
                                        "current_time",
                                        "current local time",
                                        "current utc time",
                                        "current timestamp",
                                        "the current time",
                                        "the current date and time",
                                        "the current datetime",
                                        "date and time",
                                        "local time",
                                        "time now",
                                        "today's date",
                                        "today is",
                                        "todays date",
                                        "current date",
                                        "the current date",
                                        "now"};

const MovingLine* Found(std::string_view line) {
  const std::string lower = Lower(Trimmed(line));
  for (const MovingLine& one : kLines) {
    if (lower.starts_with(one.begin) && lower.ends_with(one.end) &&
        lower.find(one.within) != std::string::npos &&
        std::ranges::any_of(lower.substr(one.begin.size()), IsDigit))
      return &one;
  }
  return nullptr;
}

bool TellsTheTime(std::string_view line) {
  std::string_view text = Trimmed(line);
  while (!text.empty() && std::string_view("-*#<> \t").find(text.front()) != text.npos) text.remove_prefix(1);
  const std::string lower = Lower(text.substr(0, 64));
  return std::ranges::any_of(kClocks, [&](std::string_view words) {
    if (!lower.starts_with(words)) return false;
    const size_t next = lower.find_first_not_of(" \t*`_", words.size());
    // Only what is said of the words, so that "Now fix the test at 10:30:00" stays.
    return next != lower.npos &&
           (std::string_view(":=>(").find(lower[next]) != std::string_view::npos || IsDigit(lower[next]) ||
            lower.compare(next, 3, "is ") == 0 || words == "today is");
  });
}

// The end of a time of day that begins at `at` ("T06:00:31.123Z", "06:00 PM PDT", "18:00:31 +02:00"); `at` if
// there is none.
size_t EndOfTime(std::string_view line, size_t at) {
  size_t end = at;
  const auto digits = [&](size_t most) {
    const size_t begin = end;
    while (end < line.size() && end - begin < most && IsDigit(line[end])) ++end;
    return end - begin;
  };
  if (digits(2) == 0 || end >= line.size() || line[end] != ':') return at;
  ++end;
  if (digits(2) != 2) return at;
  if (end < line.size() && line[end] == ':') {
    ++end;
    if (digits(2) != 2) return at;
    if (end < line.size() && (line[end] == '.' || line[end] == ',') && end + 1 < line.size() &&
        IsDigit(line[end + 1])) {
      ++end;
      digits(9);
    }
  }
  const auto skip = [&](std::string_view word) {
    size_t next = end;
    while (next < line.size() && line[next] == ' ') ++next;
    if (Lower(line.substr(next, word.size())) != word) return false;
    const size_t behind = next + word.size();
    if (behind < line.size() && std::isalnum(static_cast<unsigned char>(line[behind])) != 0) return false;
    end = behind;
    return true;
  };
  for (const char* half : {"am", "pm", "a.m.", "p.m."}) {
    if (skip(half)) break;
  }
  return end;
}

// Whether only what belongs to a date stands before the time: the clock's words, numbers, and names of days,
// months and zones. "Local time: opening hours are 9:00 to 17:00" tells no time.
bool IsDate(std::string_view text) {
  constexpr std::array<std::string_view, 23> kWords{
      "current", "local", "date", "time", "datetime", "timestamp", "now", "today", "todays", "is", "it", "s",
      "the",     "and",   "at",   "on",   "of",       "st",        "nd",  "rd",    "th",     "t",  "utc"};
  constexpr std::array<std::string_view, 19> kNames{"mon", "tue", "wed", "thu", "fri", "sat", "sun",
                                                    "jan", "feb", "mar", "apr", "may", "jun", "jul",
                                                    "aug", "sep", "oct", "nov", "dec"};
  const std::string lower = Lower(text);
  for (size_t at = 0; at < lower.size();) {
    size_t end = at;
    while (end < lower.size() && lower[end] >= 'a' && lower[end] <= 'z') ++end;
    const std::string_view word = std::string_view(lower).substr(at, end - at);
    const bool is_name = word.size() <= 9 && std::ranges::find(kNames, word.substr(0, 3)) != kNames.end();
    if (!word.empty() && !is_name && std::ranges::find(kWords, word) == kWords.end()) return false;
    at = end + 1;
  }
  return true;
}

// The line without its time of day, and without the "at" or "T" before it.
std::string WithoutTime(std::string_view line, bool& found) {
  for (size_t at = 0; at < line.size(); ++at) {
    if (!IsDigit(line[at]) || (at > 0 && (IsDigit(line[at - 1]) || line[at - 1] == ':'))) continue;
    const size_t end = EndOfTime(line, at);
    if (end == at) continue;
    if (!IsDate(line.substr(0, at))) break;
    size_t begin = at;
    if (begin > 1 && (line[begin - 1] == 'T' || line[begin - 1] == 't') && IsDigit(line[begin - 2])) --begin;
    while (begin > 0 && line[begin - 1] == ' ') --begin;
    if (begin > 2 && Lower(line.substr(begin - 3, 3)) == " at") begin -= 3;
    while (begin > 0 && (line[begin - 1] == ' ' || line[begin - 1] == ',')) --begin;
    found = true;
    return std::string(line.substr(0, begin)) + std::string(line.substr(end));
  }
  return std::string(line);
}

void Note(std::string_view name, std::vector<std::string>& names) {
  if (std::ranges::find(names, name) == names.end()) names.emplace_back(name);
}

}  // namespace

std::string WithoutMovingLines(const std::string& text, std::vector<std::string>& names) {
  std::string clean;
  clean.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end;
    if (const MovingLine* moving = Found(line)) {
      Note(moving->name, names);
    } else if (TellsTheTime(line)) {
      bool found = false;
      clean += WithoutTime(line, found);
      if (found) Note("time of day", names);
    } else {
      clean += line;
    }
  }
  return clean;
}

void RemoveMovingLines(nlohmann::ordered_json& messages, std::vector<std::string>& names) {
  if (!messages.is_array()) return;
  json kept = json::array();
  for (json& message : messages) {
    if (!message.is_object() || !message.contains("content")) {
      kept.push_back(std::move(message));
      continue;
    }
    const json role = message.value("role", json());
    json& content = message["content"];
    if (content.is_string() && (role == "system" || role == "developer")) {
      std::string clean = WithoutMovingLines(content.get_ref<const std::string&>(), names);
      const bool changed = clean != content.get_ref<const std::string&>();
      if (changed && Trimmed(clean).empty() && messages.size() > 1) continue;
      content = std::move(clean);
    }
    kept.push_back(std::move(message));
  }
  messages = std::move(kept);
}

}  // namespace coppice
