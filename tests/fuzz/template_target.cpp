// A chat template, which comes with a model, over a fixed conversation.
#include "fuzz/fuzz_support.h"
#include "fuzz/fuzz_target.h"
#include "text/jinja/chat_template.h"

namespace coppice {
namespace {

std::vector<std::string> Seeds() {
  return {
      "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' }}{% endfor "
      "%}",
      "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'].strip() "
      "}}"
      "{% else %}{{ m['content'] + eos_token }}{% endif %}{% endfor %}",
      "{%- set ns = namespace(n=0) -%}{% for i in range(3) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
      "{% macro f(x, y=2) %}{{ x * y }}{% endmacro %}{{ f(3) }}{{ messages | length }}{{ 'a,b'.split(',') }}",
      "{{ messages[1:]|map(attribute='content')|join('-')|upper }}{% if x is defined %}{{ "
      "raise_exception('x') }}"
      "{% endif %}{{ messages | tojson(indent=2) }}{{ 7 // 2 ~ 'b' }}",
  };
}

bool Run(std::string_view input) {
  static const nlohmann::ordered_json context = {
      {"messages",
       {{{"role", "system"}, {"content", " be brief "}}, {{"role", "user"}, {"content", "Who? \xc3\xa9"}}}},
      {"bos_token", "<s>"},
      {"eos_token", "</s>"},
      {"add_generation_prompt", true}};
  return Accepts([&] { ChatTemplate(std::string(input)).Render(context); });
}

}  // namespace

FuzzTarget TemplateTarget() {
  return {"template",
          Seeds,
          {"{%",      "%}",        "{{",       "}}",      "{#",     "#}",           "-%}",      " if ",
           " elif ",  "else",      "endif",    "for ",    "endfor", " in ",         "set ",     "endset",
           "macro ",  "endmacro",  "loop.",    "| trim",  "| join", "| tojson",     "| length", "| default",
           "is not ", "is string", "not ",     " and ",   " or ",   "namespace(",   "range(",   "[::-1]",
           ".split(", ".replace(", ".items()", "| items", "| sort", "| selectattr", "| unique", "| indent"},
          Run};
}

}  // namespace coppice
