// The law of agents' chats: definitions of tools are never pruned, whatever the method, the template and the
// conversation. docs/laws.md lists it.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "byte_tokenizer.h"
#include "engine/chat_prompt.h"
#include "laws_support.h"
#include "laws_table.h"

namespace coppice::agent_laws_test {
namespace {

using nlohmann::ordered_json;

// Templates that write definitions into the system message, into the first user message, in front of all,
// in their own words, and one that knows no tools, once with a system message and once without.
const std::vector<std::pair<const char*, std::string>>& Templates() {
  static const std::string turns =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}"
      "<call>{{ c.function | tojson }}</call>{% endfor %}</>{% endfor %}";
  static const std::vector<std::pair<const char*, std::string>> templates = {
      {"in the system message",
       "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if loop.first and tools %}# Tools {{ tools | "
       "tojson }}{% endif %}{% for c in m.tool_calls or [] %}<call>{{ c.function | tojson }}</call>{% endfor "
       "%}</>{% endfor %}"},
      {"in the first user message",
       "{% set ns = namespace(first=true) %}{% for m in messages %}<{{ m.role }}>{% if m.role == 'user' and "
       "ns.first %}{% set ns.first = false %}{% for t in tools or [] %}{{ t.function | tojson }}\n{% endfor "
       "%}{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor "
       "%}</>{% endfor %}"},
      {"in front", "{{ tools | tojson if tools else '' }}" + turns},
      {"before the last user message",
       "{% for m in messages %}{% if loop.last and tools %}{{ tools | tojson }}{% endif %}<{{ m.role }}>{{ "
       "m.content }}{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}</>{% endfor %}"},
      {"as text", "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"},
      {"as text in a user message",
       "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
       "<{{ m.role }}>{{ m.content }}</>{% endfor %}"},
  };
  return templates;
}

class Conversation {
 public:
  // What is said becomes `shorter` times as short; the definitions stay as they are.
  explicit Conversation(uint64_t seed, int shorter = 1) : random_(seed), shorter_(shorter) {
    for (int i = 0, count = 1 + Below(3); i < count; ++i) {
      const std::string name = "tool_" + std::to_string(i);
      definitions_.push_back("Definition of " + name + ": " + Words(1 + Below(20)));
      tools_.push_back(
          {{"type", "function"}, {"function", {{"name", name}, {"description", definitions_.back()}}}});
    }
    if (Below(2) == 0)
      messages_.push_back({{"role", "system"}, {"content", Words(1 + Below(60) / shorter_)}});
    for (int turn = 0, turns = 1 + Below(3); turn < turns; ++turn) AddTurn(turn + 1 == turns);
  }

  std::vector<ChatMessage> messages() const { return ParseMessages(messages_, "test"); }
  const ordered_json& tools() const { return tools_; }
  const std::vector<std::string>& definitions() const { return definitions_; }

 private:
  int Below(int limit) { return static_cast<int>(random_() % static_cast<uint64_t>(limit)); }
  std::string Words(int count) {
    std::string text;
    for (int i = 0; i < count; ++i)
      text += "word" + std::to_string(Below(1000)) + (Below(9) == 0 ? ".\n" : " ");
    return text + "end";
  }
  void AddTurn(bool is_last) {
    // A user may paste a definition.
    const std::string pasted = Below(4) == 0 ? definitions_.front() + " " : "";
    messages_.push_back({{"role", "user"}, {"content", pasted + Words(1 + Below(90) / shorter_)}});
    for (int i = 0, calls = Below(3); i < calls; ++i) {
      messages_.push_back({{"role", "assistant"},
                           {"content", Below(2) == 0 ? ordered_json() : ordered_json(Words(4))},
                           {"tool_calls",
                            {{{"id", "c"},
                              {"type", "function"},
                              {"function", {{"name", "tool_0"}, {"arguments", {{"path", Words(2)}}}}}}}}});
      messages_.push_back(
          {{"role", "tool"}, {"tool_call_id", "c"}, {"content", Words(1 + Below(120) / shorter_)}});
    }
    if (!is_last) messages_.push_back({{"role", "assistant"}, {"content", Words(10)}});
  }

  std::mt19937_64 random_;
  int shorter_;
  ordered_json messages_ = ordered_json::array();
  ordered_json tools_ = ordered_json::array();
  std::vector<std::string> definitions_;
};

struct Encoded {
  ChatPrompt prompt;
  std::string text;
  std::vector<PositionSpan> definitions;  // where the template, not a user, writes them
};

Encoded Encode(const Conversation& chat, const std::string& chat_template, PruneScope scope) {
  const ByteTokenizer tokenizer(chat_template);
  Encoded encoded;
  encoded.prompt = EncodeChat(chat.messages(), tokenizer, {.tools = chat.tools(), .scope = scope});
  encoded.text = tokenizer.Decode(encoded.prompt.tokens, true);
  const auto offset = encoded.text.starts_with("<s>") ? 2 : 0;  // one token of three bytes
  for (const std::string& definition : chat.definitions()) {
    const std::string quoted = ordered_json(definition).dump();  // a user's copy has no quotes
    const size_t at = encoded.text.find(quoted);
    EXPECT_NE(at, std::string::npos) << definition;
    const auto begin = static_cast<int64_t>(at) - offset;
    encoded.definitions.push_back({begin, begin + std::ssize(quoted)});
  }
  return encoded;
}

bool IsWithin(const PositionSpan& span, const std::vector<PositionSpan>& all) {
  return std::ranges::any_of(
      all, [&](const PositionSpan& one) { return one.begin <= span.begin && span.end <= one.end; });
}

// A1, of the prompt: they are protected, under every scope.
TEST(AgentLaws, DefinitionsAreProtected) {
  int prunable = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const Conversation chat(seed);
    for (const auto& [name, chat_template] : Templates()) {
      for (const PruneScope scope : {PruneScope::kAuto, PruneScope::kNew, PruneScope::kAll}) {
        SCOPED_TRACE(testing::Message() << name << ", conversation " << seed);
        const Encoded encoded = Encode(chat, chat_template, scope);
        const std::vector<PositionSpan> stay =
            SpansOf({.first = 0, .last = 0, .spans = encoded.prompt.protected_spans},
                    std::ssize(encoded.prompt.tokens));
        for (const PositionSpan& span : encoded.definitions)
          ASSERT_TRUE(IsWithin(span, stay)) << encoded.text;
        if (scope != PruneScope::kAll) prunable += stay.size() > 1 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(prunable, 100) << "most conversations have nothing to prune";
}

class AgentLawsOfMethods : public testing::TestWithParam<MethodEntry> {};

// A1, of every method: each layer holds their keys after the prefill and after some steps, and ran what the
// layer runs for the rows that stay.
TEST_P(AgentLawsOfMethods, DefinitionsStayInEveryLayer) {
  const auto backend = MakeBackendOrSkip("cpu", {.threads = 1});
  if (!backend) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
  const TinyModel tiny = MakeTiny({});
  int acted = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const auto& [name, chat_template] = Templates()[seed % Templates().size()];
    SCOPED_TRACE(testing::Message() << name << ", conversation " << seed);
    // Shorter than above: attention is quadratic in tokens, which are bytes here.
    const Encoded encoded = Encode(Conversation(seed, 2), chat_template, PruneScope::kNew);
    std::vector<int32_t> prompt = encoded.prompt.tokens;
    for (int32_t& id : prompt) id %= 50;
    TraceRecorder recorder;
    RunOptions options;
    options.spec = GetParam().active;
    options.protection.spans = encoded.prompt.protected_spans;
    options.protection.apart = encoded.prompt.apart;
    options.question = encoded.prompt.question;
    options.decode = 3;
    options.trace = &recorder;
    const RunResult run = RunTiny(tiny.Make(), prompt, *backend, options);
    acted += run.active ? 1 : 0;
    const Trace trace = recorder.Take();
    for (size_t l = 0; l < trace.prefill.size(); ++l) {
      for (const PositionSpan& span : encoded.definitions) {
        for (auto p = static_cast<int32_t>(span.begin); p < span.end; ++p) {
          ASSERT_TRUE(Has(trace.prefill[l].kept, p)) << "layer " << l << " position " << p;
          if (l + 1 < trace.prefill.size()) {
            ASSERT_TRUE(Has(trace.prefill[l].ffn, p)) << "layer " << l;
          }
        }
        for (const TraceStep& step : trace.steps) {
          for (const TraceEvent& event : step.events) {
            if (event.kind != TraceEventKind::kEvicted && event.kind != TraceEventKind::kDropped) continue;
            for (const int32_t p : event.positions)
              ASSERT_FALSE(span.begin <= p && p < span.end) << "position " << p << " left in a step";
          }
        }
      }
    }
  }
  EXPECT_GT(acted, 0);
}

INSTANTIATE_TEST_SUITE_P(Methods, AgentLawsOfMethods, testing::ValuesIn(LawEntries()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace coppice::agent_laws_test
