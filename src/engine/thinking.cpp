#include "engine/thinking.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "engine/marks.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;

constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kChannel = "<|channel|>";

struct MarkPair {
  std::string_view open, close;
  bool anywhere = false;
};
// Templates' own marks first: several also speak of <think>.
constexpr auto kPairs = std::to_array<MarkPair>({
    {"<|channel>thought", "<channel|>", true},                   // Gemma 4
    {"[THINK]", "[/THINK]"},                                     // Mistral
    {"<|START_THINKING|>", "<|END_THINKING|>"},                  // Command R7B, A
    {"<seed:think>", "</seed:think>"},                           // Seed-OSS
    {"<mm:think>", "</mm:think>"},                               // MiniMax M3
    {"<|inner_prefix|>", "<|inner_suffix|>"},                    // Apertus
    {"Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"},  // Apriel 1.6
    {"<think>", "</think>"},                                     // Qwen 3, DeepSeek, GLM and many others
});

constexpr auto kSwitches =
    std::to_array<std::string_view>({"enable_thinking", "thinking", "thinking_mode", "thinking_option",
                                     "thinking_budget", "reasoning_effort", "reasoning_strength"});

// The line breaks that the template writes in front of the first `mark` in it, or behind it: as escapes of a
// Jinja string, or as they are.
std::string BreaksBefore(std::string_view chat_template, std::string_view mark) {
  for (size_t at = chat_template.find(mark); at != chat_template.npos;
       at = chat_template.find(mark, at + 1)) {
    const std::string_view before = chat_template.substr(0, at);
    if (before.ends_with("\\n") || before.ends_with("\n")) return "\n";
  }
  return "";
}
std::string BreaksBehind(std::string_view chat_template, std::string_view mark) {
  std::string most;
  for (size_t at = chat_template.find(mark); at != chat_template.npos;
       at = chat_template.find(mark, at + 1)) {
    std::string_view rest = chat_template.substr(at + mark.size());
    std::string breaks;
    while (rest.starts_with("\\n") && breaks.size() < 2) {
      breaks += '\n';
      rest.remove_prefix(2);
    }
    if (breaks.size() > most.size()) most = breaks;
  }
  return most;
}

// Whether a Jinja template has this name by itself, and not as a member or within another name.
bool HasName(std::string_view text, std::string_view name) {
  const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (size_t at = text.find(name); at != text.npos; at = text.find(name, at + 1)) {
    const bool begins = at == 0 || !(is_part(text[at - 1]) || text[at - 1] == '.');
    const size_t end = at + name.size();
    if (begins && (end == text.size() || !is_part(text[end]))) return true;
  }
  return false;
}

ordered_json EffortFor(std::string_view chat_template, const ThinkingWish& wish) {
  const auto knows = [&](std::string_view word) { return chat_template.find(word) != chat_template.npos; };
  if (wish.on == false && knows("no_think")) return "no_think";
  std::string effort = wish.effort;
  if (effort == "none" || (effort.empty() && wish.on == false)) effort = "low";
  if (effort == "minimal" && !knows("minimal")) effort = "low";
  if ((effort == "xhigh" || effort == "max") && !knows(effort)) effort = "high";
  if (effort == "medium" && !knows("medium") && knows("no_think")) effort = "high";
  if (effort.empty() && wish.on == true && knows("no_think")) effort = "high";
  return effort.empty() ? ordered_json() : ordered_json(effort);
}

}  // namespace

bool ReadsThinkingInParts(std::string_view chat_template) {
  const auto has = [&](std::string_view text) { return chat_template.find(text) != chat_template.npos; };
  return (has("== 'thinking'") || has("== \"thinking\"")) && !has("reasoning_content") && !has(".thinking");
}

std::optional<ThinkingForm> ThinkingFormOf(std::string_view chat_template) {
  const auto has = [&](std::string_view text) { return chat_template.find(text) != chat_template.npos; };
  const bool has_switch =
      std::ranges::any_of(kSwitches, [&](std::string_view name) { return HasName(chat_template, name); });
  if (has("<|start|>assistant") && has(kMessage)) {
    return ThinkingForm{.channels = true,
                        .has_switch = true,
                        .force = has(kChannel) ? "<|end|><|start|>assistant<|channel|>final<|message|>"
                                               : "<|eom|><|start|>assistant to=user<|message|>"};
  }
  for (const MarkPair& pair : kPairs) {
    if (!has(pair.close)) continue;
    return ThinkingForm{.open = std::string(pair.open),
                        .close = std::string(pair.close),
                        .anywhere = pair.anywhere,
                        .has_switch = has_switch,
                        .force = BreaksBefore(chat_template, pair.close) + std::string(pair.close) +
                                 BreaksBehind(chat_template, pair.close)};
  }
  // Hunyuan 3 puts its marks together: '</think{}>'.format(':opensource').
  if (has("'</think{}>'") && has("':opensource'"))
    return ThinkingForm{
        .open = "<think:opensource>", .close = "</think:opensource>", .force = "</think:opensource>"};
  return std::nullopt;
}

std::vector<std::string_view> ThinkingMarks(const ThinkingForm& form) {
  if (form.channels)
    return {"<|start|>",  kMessage,   kChannel,  "<|constrain|>", "<|end|>",
            "<|return|>", "<|call|>", "<|eom|>", "<|eot|>"};
  std::vector<std::string_view> marks{form.open, form.close};
  if (form.open.starts_with("<|channel>"))
    marks[0] = marks[0].substr(0, std::string_view("<|channel>").size());
  return marks;
}

ThinkingStart ThinkingStartOf(const ThinkingForm& form, std::string_view prompt,
                              std::optional<std::string_view> continued) {
  if (continued) {
    const size_t open = form.channels ? continued->npos : continued->rfind(form.open);
    const bool inside = open != continued->npos && continued->find(form.close, open) == continued->npos;
    return inside ? ThinkingStart::kInside : ThinkingStart::kAnswer;
  }
  const std::string_view end = WithoutBlanksAtEnd(prompt);
  if (form.channels) {
    if (!end.ends_with(kMessage)) return ThinkingStart::kBefore;
    const bool thinks = end.ends_with("analysis<|message|>") || end.ends_with("to=self<|message|>");
    return thinks ? ThinkingStart::kInside : ThinkingStart::kAnswer;
  }
  if (end.ends_with(form.open)) return ThinkingStart::kInside;
  return end.ends_with(form.close) ? ThinkingStart::kClosed : ThinkingStart::kBefore;
}

ordered_json ThinkingVariables(std::string_view chat_template, const ThinkingWish& wish) {
  ordered_json variables = ordered_json::object();
  const auto knows = [&](std::string_view name) { return HasName(chat_template, name); };
  if (wish.on) {
    for (const char* name : {"enable_thinking", "thinking"}) {
      if (knows(name)) variables[name] = *wish.on;
    }
    if (knows("thinking_mode")) variables["thinking_mode"] = *wish.on ? "enabled" : "disabled";
    if (knows("thinking_option")) variables["thinking_option"] = *wish.on ? "on" : "off";
  }
  if (knows("thinking_budget") && (wish.budget || wish.on == false))
    variables["thinking_budget"] = wish.on == false ? 0 : *wish.budget;
  for (const char* name : {"reasoning_effort", "reasoning_strength"}) {
    if (!knows(name)) continue;
    if (ordered_json effort = EffortFor(chat_template, wish); !effort.is_null())
      variables[name] = std::move(effort);
  }
  return variables;
}

}  // namespace coppice
