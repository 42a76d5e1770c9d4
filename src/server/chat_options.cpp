#include "server/chat_options.h"

#include "base/error.h"
#include "engine/chat_tools.h"

namespace coppice {

namespace {

// llama.cpp's convention: an assistant's message at the end is the beginning of the answer.
bool EndsWithAnAnswer(const std::vector<ChatMessage>& messages) {
  const auto is_answer = [](const ChatMessage& m) { return m.role == "assistant" && m.tool_calls->empty(); };
  if (messages.empty() || !is_answer(messages.back())) return false;
  if (messages.size() > 1 && is_answer(messages[messages.size() - 2]))
    throw Error("two messages of the assistant end the chat, so it is not clear which the answer continues");
  return !messages.back().content.empty();
}

// The definitions that the template writes.
nlohmann::ordered_json TemplateTools(const Parameters& p) {
  nlohmann::ordered_json tools = nlohmann::ordered_json::array();
  if (p.tool_choice == ToolChoice::kNone) return tools;
  for (const nlohmann::ordered_json& tool : *p.tools) {
    if (!tool.contains(kDefinedInMessages)) tools.push_back(tool);
  }
  return tools;
}

}  // namespace

ChatOptions ChatOptionsOf(const Parameters& p, const std::vector<ChatMessage>& messages,
                          const Tokenizer& tokenizer, const std::atomic<bool>* cancelled) {
  ChatOptions options{.add_special = p.add_special.value_or(true),
                      .variables = p.template_variables,
                      .tools = TemplateTools(p),
                      .continue_final_message =
                          p.continue_final_message ? *p.continue_final_message : EndsWithAnAnswer(messages),
                      .parse_messages = p.parse_special.value_or(false),
                      .scope = p.prune_scope,
                      .cancelled = cancelled};
  // A continued message takes the place of the head that begins an answer.
  if (!options.variables->contains("add_generation_prompt")) {
    options.variables->emplace("add_generation_prompt",
                               p.add_generation_prompt && !options.continue_final_message);
  }
  ThinkingWish wish = p.thinking;
  if (ThinkingBudgetOf(p) == 0) wish.on = false;
  // What chat_template_kwargs names comes first.
  const nlohmann::ordered_json variables =
      ThinkingVariables(ChatTemplateOf(tokenizer, !options.tools->empty()), wish);
  for (const auto& [name, value] : variables.items()) {
    if (!options.variables->contains(name)) (*options.variables)[name] = value;
  }
  return options;
}

std::optional<int64_t> ThinkingBudgetOf(const Parameters& p) {
  return p.thinking.on == false ? std::optional<int64_t>(0) : p.thinking.budget;
}

}  // namespace coppice
