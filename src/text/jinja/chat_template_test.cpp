// Chat templates of real models, hostile templates, and random edits.
#include "text/jinja/chat_template.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/limits.h"
#include "test_files.h"

namespace coppice {
namespace {

using Json = nlohmann::ordered_json;

Json ReadShared(const std::string& name) {
  std::ifstream file(SharedPath("data/" + name));
  return file ? Json::parse(file) : Json();
}

Json Conversation() {
  return Json::parse(R"({"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": true,
                         "bos_token": "<s>", "eos_token": "</s>"})");
}

std::string TemplateError(const std::string& source, const Json& context = Conversation()) {
  try {
    ChatTemplate(source).Render(context);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string Repeated(const std::string& text, int count) {
  std::string out;
  out.reserve(text.size() * static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

struct SpecialTokens {
  const char* bos;
  const char* eos;
};

// The special tokens of the models whose templates the cases contain.
const std::map<std::string, SpecialTokens> kTokens = {
    {"llama2", {"<s>", "</s>"}},
    {"llama3", {"<|begin_of_text|>", "<|eot_id|>"}},
    {"zephyr", {"<s>", "</s>"}},
    {"gemma", {"<bos>", "<eos>"}},
    {"phi3", {"<s>", "<|endoftext|>"}},
    {"mistral", {"<s>", "</s>"}},
    {"deepseek", {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"}}};

Json ContextOf(const std::string& name, const Json& test_case) {
  Json context = test_case;
  for (const char* key : {"expected", "raises", "error"}) context.erase(key);
  if (kTokens.contains(name)) {
    context["bos_token"] = kTokens.at(name).bos;
    context["eos_token"] = kTokens.at(name).eos;
  }
  // The cases turn thinking off with the effort "off", which the templates know as enable_thinking = false.
  if (context.value("reasoning_effort", "") == "off") {
    context.erase("reasoning_effort");
    context["enable_thinking"] = false;
  }
  return context;
}

TEST(ChatTemplate, MatchesEveryParityCase) {
  const Json families = ReadShared("parity/chat_template_cases.json");
  if (families.is_null()) GTEST_SKIP() << "no " << SharedPath("data/parity/chat_template_cases.json");
  int cases = 0;
  for (const auto& [name, family] : families.items()) {
    const ChatTemplate chat_template(family["template"].get<std::string>());
    for (const Json& test_case : family["cases"]) {
      SCOPED_TRACE(name + " " + test_case.dump());
      const Json context = ContextOf(name, test_case);
      ++cases;
      if (test_case.value("raises", false)) {
        const std::string error = TemplateError(family["template"], context);
        EXPECT_NE(error.find(test_case["error"].get<std::string>()), std::string::npos) << error;
        continue;
      }
      EXPECT_EQ(chat_template.Render(context), test_case["expected"].get<std::string>());
    }
  }
  EXPECT_GE(cases, 90);
}

TEST(ChatTemplate, RendersQwen2FromItsTokenizerConfig) {
  const Json config = ReadShared("tokenizer/qwen2-hf/tokenizer_config.json");
  if (config.is_null()) GTEST_SKIP() << "no " << SharedPath("data/tokenizer/qwen2-hf/tokenizer_config.json");
  EXPECT_EQ(ChatTemplate(config["chat_template"].get<std::string>()).Render(Conversation()),
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n");
}

TEST(ChatTemplate, RendersTheSameAgainAndFromACopyOfTheHandle) {
  ChatTemplate first(
      "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}");
  EXPECT_EQ(first.Render(Conversation()), "1");
  const ChatTemplate second(std::move(first));
  EXPECT_EQ(second.Render(Conversation()), "1");
}

TEST(ChatTemplate, PassesUndefinedFunctionsAndMissingRolesOnAsErrors) {
  EXPECT_EQ(TemplateError("a\n{{ nothing() }}"), "[chat template] line 2: 'nothing' is undefined");
  EXPECT_EQ(TemplateError("{% for m in messages %}\n{{ m['role'] + m.name }}\n{% endfor %}"),
            "[chat template] line 2: 'dict object' has no attribute 'name'");
  EXPECT_EQ(TemplateError("{{ raise_exception('two\nlines') }}"), "[chat template] line 1: two lines");
  EXPECT_LT(TemplateError("{{ raise_exception('x' * 100000) }}").size(), 1100u);
}

TEST(ChatTemplate, KeepsTheSandboxShut) {
  for (const char* name : {"__class__", "__init__", "__globals__", "__dict__", "mro", "func_code"}) {
    for (const char* object :
         {"messages", "messages[0]", "bos_token", "range", "namespace()", "messages[0].items", "none"}) {
      EXPECT_EQ(ChatTemplate(fmt::format("{{{{ {}.{} }}}}", object, name)).Render(Conversation()), "");
      EXPECT_NE(TemplateError(fmt::format("{{{{ {}['{}'].x }}}}", object, name)), "no error");
    }
  }
  EXPECT_NE(TemplateError("{% import 'x' as y %}"), "no error");
  EXPECT_NE(TemplateError("{% include '/etc/passwd' %}"), "no error");
}

TEST(ChatTemplate, NowIsFormattedAsAsked) {
  const std::string year = ChatTemplate("{{ strftime_now('%Y') }}").Render(Conversation());
  EXPECT_EQ(year.size(), 4u);
  EXPECT_GE(std::stoi(year), 2024);
  EXPECT_NE(TemplateError("{{ strftime_now('%Y' * 1000) }}"), "no error");
}

// A template that must end as an Error, quickly and without allocating the memory it asks for.
struct Hostile {
  const char* name;
  std::string source;
  const char* says;
};

// std::string's search takes |text| |part| steps on these, which would be days.
TEST(ChatTemplate, LongSearchesAreLinear) {
  const ChatTemplate searches(
      "{% set a = 'a' * 1000000 %}{% set b = 'a' * 500000 + 'b' %}{% set c = 'b' + 'a' * 500000 %}"
      "{{ a.find(b) }} {{ b in a }} {{ a.split(b)|length }} {{ a.rfind(c) }} {{ (c + 'x').rfind(c[1:]) }} {{ "
      "a.count(b) }}");
  EXPECT_EQ(searches.Render(Json::object()), "-1 False 1 -1 1 0");
}

void ExpectRefused(std::span<const Hostile> cases) {
  for (const Hostile& hostile : cases) {
    SCOPED_TRACE(hostile.name);
    const auto start = std::chrono::steady_clock::now();
    const std::string error = TemplateError(hostile.source);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    EXPECT_TRUE(error.starts_with("[chat template] line ")) << error;
    EXPECT_NE(error.find(hostile.says), std::string::npos) << error;
    EXPECT_LT(seconds.count(), 20.0);  // including sanitizers and busy machines; about a second without
  }
}

TEST(ChatTemplate, RefusesWhatWouldTakeTooMuch) {
  ExpectRefused(std::vector<Hostile>{
      {"a macro that calls itself", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "deeper"},
      {"two macros that call each other",
       "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}", "deeper"},
      {"a macro tree",
       "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}", "steps"},
      {"a caller that calls itself",
       "{% macro f() %}{{ caller() }}{% endmacro %}{% macro g() %}{% call f() %}{{ g() }}{% endcall %}{% "
       "endmacro %}{{ g() }}",
       "deeper"},
      {"range(10**9)", "{% for i in range(10**9) %}x{% endfor %}", "too big"},
      {"a huge negative range", "{{ range(9223372036854775807, -9223372036854775807, -1) }}", "too big"},
      {"loops in loops", "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
       "steps"},
      {"a huge string", "{{ 'x' * 10**9 }}", "memory"},
      {"a huger string", "{{ ('x' * 10**3) * 9223372036854775807 }}", "memory"},
      {"a huge list", "{{ [1] * 10**9 }}", "memory"},
      {"a doubling string",
       "{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}", ""},
      {"a doubling list",
       "{% set n = namespace(l=[1]) %}{% for i in range(99) %}{% set n.l = n.l + n.l %}{% endfor %}", ""},
      {"a doubling tree",
       "{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l "
       "}}",
       ""},
      {"a doubling tree as JSON",
       "{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l | "
       "tojson }}",
       ""},
      {"comparing doubling trees",
       "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}{% set n.b = "
       "[n.b, n.b] %}{% endfor %}{{ n.a == n.b }}",
       "steps"},
      {"a deep list",
       "{% set n = namespace(l=[]) %}{% for i in range(99999) %}{% set n.l = [n.l] %}{% endfor %}", "nest"},
      {"a deep loop variable",
       "{% set n = namespace(l=[]) %}{% for i in range(99999) %}{% for j in [n.l] %}{% set n.l = loop %}{% "
       "endfor %}{% endfor %}",
       "nest"},
      {"a list of big strings",
       "{% set n = namespace(l=[]) %}{% for i in range(9999) %}{% set n.l = n.l + ['x' * 1000000 ~ i] %}{% "
       "endfor %}",
       ""},
      {"a big output", "{% set s = 'x' * 1000000 %}{% for i in range(99) %}{{ s }}{% endfor %}", "output"},
      {"big blocks in blocks",
       "{% macro f(n) %}{{ 'x' * 9000000 }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(50) }}",
       "output"},
      {"an exploding replace", "{{ ('x' * 100000).replace('x', 'y' * 100000) }}", ""},
      {"an exploding join", "{{ ('y' * 100000).join(['a'] * 100000) }}", ""},
      {"an exploding indent", "{{ ('a\n' * 1000000) | indent(1000) }}", ""},
      {"a wide precision", "{{ 1.5 | round(10**9) }}", "precision"},
      {"splitting into letters", "{{ ('a ' * 30000000).split() }}", ""},
      {"iterating over a long string", "{% for c in 'x' * 50000000 %}{% endfor %}", ""},
      {"an integer power", "{{ 10 ** 10000000000 }}", "64 bits"},
      {"the smallest integer divided", "{{ (-9223372036854775807 - 1) // -1 }}", "64 bits"},
  });
}

TEST(ChatTemplate, RefusesDeepSyntax) {
  const int million = 1'000'000;
  ExpectRefused(std::vector<Hostile>{
      {"nested ifs", Repeated("{% if true %}", million), "nests deeper"},
      {"nested loops", Repeated("{% for a in b %}", million), "nests deeper"},
      {"nested macros", Repeated("{% macro a() %}", million), "nests deeper"},
      {"nested parentheses", "{{ " + std::string(million, '('), "nests deeper"},
      {"nested lists", "{{ " + std::string(million, '['), "nests deeper"},
      {"nested dicts", "{{ " + Repeated("{1:", million), "nests deeper"},
      {"nested subscripts", "{{ a" + Repeated("[a", million), "nests deeper"},
      {"nested calls", "{{ a" + Repeated("(a", million), "nests deeper"},
      {"many nots", "{{ " + Repeated("not ", million) + "1 }}", "nests deeper"},
      {"many minus signs", "{{ " + std::string(million, '-') + "1 }}", "nests deeper"},
      {"many inline ifs", "{{ 1 " + Repeated("if 1 else 1 ", million) + "}}", "nests deeper"},
      {"nested targets", "{% for " + std::string(million, '('), "nests deeper"},
      {"nested defaults", "{{ a" + Repeated("|default(a", million), "nests deeper"},
      {"nested tests", "{{ a" + Repeated(" is in(a", million), "nests deeper"},
      {"an integer of a million digits", "{{ " + std::string(million, '9') + " }}", "64 bits"},
  });
}

// Flat chains use no stack, whatever their length.
TEST(ChatTemplate, LongChainsAreNoNesting) {
  const int many = 20'000;
  EXPECT_EQ(ChatTemplate("{{ 0" + Repeated(" + 1", many) + " }}").Render({}), "20000");
  EXPECT_EQ(ChatTemplate("{{ 'a'" + Repeated("|upper", many / 100) + " }}").Render({}), "A");
  EXPECT_EQ(ChatTemplate("{{ x" + Repeated(" or x", many) + " }}").Render({}), "");
  EXPECT_EQ(ChatTemplate("{% if x %}" + Repeated("{% elif x %}", many) + "{% else %}e{% endif %}").Render({}),
            "e");
}

// A prompt of the size that the engine is built for.
TEST(ChatTemplate, LongMessagesFitTheBudget) {
  Json context = Conversation();
  const std::string text = Repeated("a long prompt ", 4 << 20 >> 4);
  context["messages"][0]["content"] = "  " + text + "end  ";
  const ChatTemplate chat_template(
      "{% for m in messages %}{% set c = m.content | trim %}{{ '<' + m.role + '>' + c.strip() }}{% endfor "
      "%}");
  EXPECT_EQ(chat_template.Render(context), "<user>" + text + "end");
}

TEST(ChatTemplate, ManyMessagesFitTheBudget) {
  Json context = Conversation();
  for (int i = 0; i < 3000; ++i)
    context["messages"].push_back({{"role", i % 2 ? "user" : "assistant"}, {"content", "x"}});
  const ChatTemplate chat_template(
      "{% for m in messages %}{% if m['role'] == 'user' %}{{ 'U' + m['content'] }}{% elif m['role'] == "
      "'assistant' %}"
      "{{ 'A' + m['content'] | trim }}{% endif %}{% endfor %}");
  EXPECT_EQ(chat_template.Render(context).size(), 2u * 3000 + 3);
}

// Random edits of a template must give a result or an Error.
TEST(ChatTemplate, SurvivesRandomEdits) {
  const std::string seed =
      "{%- set ns = namespace(n=0, s='') %}{% macro show(m, deep=true) -%}\n  {{- m.role ~ ': ' ~ "
      "(m['content'] | trim)"
      " }}\n{%- endmacro %}\n{% for m in messages if m.content is string %}\n  {%- if loop.first and m.role "
      "== 'user'"
      " %}{{ bos_token + show(m, deep=false) }}{% elif not loop.last %}{{ m | tojson(indent=2) }}{% else %}"
      "{{ [1, 2.5, {'a': (1,)}][::-1] }}{% endif %}{% set ns.n = ns.n + loop.index0 * 2 // 3 %}{% endfor "
      "%}{# c #}"
      "{{ messages | map(attribute='role') | join(',') }}{% raw %}{{ }}{% endraw %}{{ 'é'.split('x', 1)[-1] "
      "if ns.n"
      " else range(3) | list }}{% filter upper %}a{% endfilter %}{{ messages[0].items() | list }}{% set x "
      "%}b{% endset %}";
  const std::string pieces[] = {"{{",    "}}",   "{%",      "%}",     "{#",          "#}",
                                "-",     "(",    ")",       "[",      "]",           "{",
                                "}",     "'",    "\"",      "|",      ".",           " is ",
                                " not ", " in ", " if ",    " else ", "{% endif %}", "{% for x in ns %}",
                                "\\",    "\xff", "é",       "loop",   "m",           "9",
                                "*",     "**",   "~",       ",",      ":",           "=",
                                "\n",    "ns",   "{% set ", "|sort",  "|int"};
  std::mt19937 random(7);
  int rendered = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string source = seed;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
      const size_t at = random() % source.size();
      const size_t other = random() % source.size();
      switch (random() % 4) {
        case 0:
          source.erase(at, random() % 8);
          break;
        case 1:
          source.insert(at, pieces[random() % std::size(pieces)]);
          break;
        case 2:
          source.insert(at, source.substr(other, random() % 20));
          break;
        default:
          source[at] = static_cast<char>(random() % 256);
          break;
      }
    }
    if (TemplateError(source) == "no error") ++rendered;
  }
  EXPECT_GT(rendered, 100);   // some edits leave the template valid
  EXPECT_LT(rendered, 2900);  // most do not
}

TEST(ChatTemplate, EndsWhenItIsCancelled) {
  const std::atomic<bool> cancelled{true};
  const std::string source = "{% for m in messages %}{{ m['content'] }}{% endfor %}";
  EXPECT_THROW(ChatTemplate(source).Render(Conversation(), &cancelled), Cancelled);
}

// Two blocks of 8 bytes after which MurmurHash64A, the standard library's hash of strings, is in the same
// state for all keys: the second block undoes what the first did. Half the tries are no ASCII, and so no key.
std::vector<std::string> CollidingKeys(size_t count) {
  constexpr uint64_t kMul = 0xc6a4a7935bd1e995;
  uint64_t inverse = 1;
  for (int i = 0; i < 6; ++i) inverse *= 2 - kMul * inverse;
  const auto mix = [](uint64_t v) { return v ^ (v >> 47); };
  std::vector<std::string> keys;
  for (uint64_t i = 0; keys.size() < count; ++i) {
    char block[17] = {};
    for (int at = 0; at < 8; ++at) block[at] = static_cast<char>('A' + ((i >> (4 * at)) & 15));
    uint64_t first = 0;
    std::memcpy(&first, block, 8);
    const uint64_t state = ((0xc70f6907ull ^ (16 * kMul)) ^ (mix(first * kMul) * kMul)) * kMul;
    const uint64_t second = mix(state * inverse) * inverse;
    std::memcpy(block + 8, &second, 8);
    const auto is_plain = [](char c) { return c > ' ' && c < 127; };
    if (std::all_of(block, block + 16, is_plain)) keys.emplace_back(block, 16);
  }
  return keys;
}

TEST(ChatTemplate, KeysThatCollideTakeNoLonger) {
  const std::vector<std::string> keys = CollidingKeys(20'000);
  const auto seconds = [](const std::vector<std::string>& names) {
    Json object = Json::object();
    auto& members = object.get_ref<Json::object_t&>();
    for (const std::string& name : names) members.push_back({name, 1});
    const auto start = std::chrono::steady_clock::now();
    ChatTemplate("{{ x | length }}").Render(Json{{"x", object}});
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  ASSERT_EQ(std::hash<std::string>()(keys[0]), std::hash<std::string>()(keys[1]));
  std::vector<std::string> others;
  for (size_t i = 0; i < keys.size(); ++i) others.push_back("a plain key " + std::to_string(10'000 + i));
  EXPECT_LT(seconds(keys), 10 * seconds(others) + 0.05);
}

}  // namespace
}  // namespace coppice
