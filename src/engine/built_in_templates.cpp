#include "engine/built_in_templates.h"

#include <optional>

namespace coppice {

const std::string kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

namespace {

// Gemma's models know no system role: its text stands in front of the next message's.
const std::string kGemma =
    "{% set ns = namespace(system='') %}{% for message in messages %}{% if message['role'] == 'system' %}"
    "{% set ns.system = ns.system + message['content'] | trim + '\n\n' %}{% else %}"
    "{{ '<start_of_turn>' }}{% if message['role'] == 'assistant' %}{{ 'model' }}{% else %}"
    "{{ message['role'] }}{% endif %}{{ '\n' + ns.system + message['content'] | trim + "
    "'<end_of_turn>\n' }}{% set ns.system = '' %}{% endif %}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<start_of_turn>model\n' }}{% endif %}";

}  // namespace

std::string BuiltInTemplate(std::string_view name) {
  if (name == "chatml") return kChatMl;
  if (name == "llama3")
    return "{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + "
           "'<|end_header_id|>\n\n' + "
           "message['content'] | trim + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}"
           "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}";
  if (name == "command-r")
    return "{% for message in messages %}{{ '<|START_OF_TURN_TOKEN|><|' }}{% if message['role'] == "
           "'assistant' %}"
           "{{ 'CHATBOT' }}{% else %}{{ message['role'] | upper }}{% endif %}{{ '_TOKEN|>' + "
           "message['content'] | "
           "trim + '<|END_OF_TURN_TOKEN|>' }}{% endfor %}{% if add_generation_prompt %}"
           "{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}";
  if (name == "gemma") return kGemma;
  return "";
}

const std::string& ChatTemplateOf(const Tokenizer& tokenizer, bool with_tools) {
  if (with_tools && !tokenizer.tool_template().empty()) return tokenizer.tool_template();
  if (!tokenizer.chat_template().empty()) return tokenizer.chat_template();
  const std::optional<int32_t> turn = tokenizer.Find("<start_of_turn>");
  return turn && tokenizer.IsControl(*turn) ? kGemma : kChatMl;
}

}  // namespace coppice
