// The fields that say how long a model thinks, and how its thinking is shown: OpenAI's, Anthropic's,
// llama.cpp's, vLLM's, and those of services that serve Qwen and DeepSeek.
#include <fmt/format.h>

#include <algorithm>

#include "server/errors.h"
#include "server/parameter_table.h"

namespace coppice {

namespace {

using nlohmann::json;

constexpr int64_t kMostThinking = 1 << 30;

// null says nothing.
std::optional<json> Given(const json& object, const char* member) {
  const auto found = object.find(member);
  if (found == object.end() || found->is_null()) return std::nullopt;
  return *found;
}

void SetOn(bool on, Parameters& out) {
  out.thinking.on = on;
  // The server's own budget of 0 says only that it does not think unless asked.
  if (on && out.thinking.budget == 0) out.thinking.budget.reset();
}

void ReadOn(const json& value, const std::string& name, Parameters& out) {
  if (!value.is_boolean()) throw BadField(name, "is not true or false");
  SetOn(value.get<bool>(), out);
}

// -1: no limit, as llama.cpp has it.
void ReadBudget(const json& value, const std::string& name, Parameters& out) {
  if (!value.is_number_integer() || value < -1 || value > kMostThinking) {
    throw BadField(name, fmt::format("{} is not a whole number of tokens from -1 (no limit) to {}",
                                     value.dump().substr(0, 40), kMostThinking));
  }
  out.thinking.budget.reset();
  if (value >= 0) out.thinking.budget = value.get<int64_t>();
}

void ReadEffort(const json& value, const std::string& name, Parameters& out) {
  static constexpr const char* kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
  if (!value.is_string() || std::ranges::none_of(kEfforts, [&](const char* one) { return value == one; }))
    throw BadField(name, "is none of none, minimal, low, medium, high, xhigh and max");
  out.thinking.effort = value.get<std::string>();
  SetOn(out.thinking.effort != "none", out);
}

// Anthropic's {"type": "enabled", "budget_tokens": N}, disabled or adaptive.
void ReadThinking(const json& value, const std::string& name, Parameters& out) {
  if (value.is_boolean()) return SetOn(value.get<bool>(), out);
  const json type = value.is_object() ? Given(value, "type").value_or(json()) : json();
  if (type != "enabled" && type != "disabled" && type != "adaptive")
    throw BadField(name, "its type is none of enabled, disabled and adaptive");
  SetOn(type != "disabled", out);
  const std::optional<json> budget = Given(value, "budget_tokens");
  if (budget && type == "enabled") ReadBudget(*budget, name + ".budget_tokens", out);
}

// {"effort", "summary"} of OpenAI's responses; {"enabled", "max_tokens", "exclude"} of services that pass
// requests on.
void ReadReasoning(const json& value, const std::string& name, Parameters& out) {
  if (!value.is_object()) throw BadField(name, "is not an object");
  if (const auto on = Given(value, "enabled")) ReadOn(*on, name + ".enabled", out);
  if (const auto effort = Given(value, "effort")) ReadEffort(*effort, name + ".effort", out);
  if (const auto most = Given(value, "max_tokens")) ReadBudget(*most, name + ".max_tokens", out);
  if (const auto exclude = Given(value, "exclude"); exclude && exclude->is_boolean())
    out.shows_thinking = !exclude->get<bool>();
}

// llama.cpp's names: none leaves the thinking in the text, the others take it out.
void ReadFormat(const json& value, const std::string& name, Parameters& out) {
  if (value != "none" && value != "auto" && value != "deepseek" && value != "deepseek-legacy")
    throw BadField(name, "is none of none, auto, deepseek and deepseek-legacy");
  out.splits_thinking = value != "none";
}

constexpr Field kFields[] = {
    {"enable_thinking", kRendersChat, &ReadOn},
    {"reasoning_effort", kRendersChat, &ReadEffort},
    {"reasoning", kRendersChat, &ReadReasoning},
    {"thinking", kRendersChat, &ReadThinking},
    {"thinking_budget_tokens thinking_budget thinking_token_budget reasoning_budget", kRendersChat,
     &ReadBudget},
    {"reasoning_format", kChat, &ReadFormat},
    {"include_reasoning", kChat, [](Parameters& p) -> bool& { return p.shows_thinking; }},
};

}  // namespace

std::span<const Field> ThinkingFields() { return kFields; }

}  // namespace coppice
