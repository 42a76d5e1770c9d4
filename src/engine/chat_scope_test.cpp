// Which texts of a chat may be pruned under PruneScope::kNew, with a tokenizer of one token per byte.
#include "engine/chat_scope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "byte_tokenizer.h"
#include "test_files.h"

namespace coppice {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::IsEmpty;
using Texts = std::vector<std::string>;

const std::string kTemplate =
    "{{ tools | tojson if tools else '' }}{% for m in messages %}[{{ m.role }}]{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}<call>{{ c.function | tojson }}</call>{% endfor %}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";

std::string Long(char letter, size_t size = 400) { return std::string(size, letter); }

ordered_json Said(const char* role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}
ordered_json Called(const char* name, const ordered_json& arguments) {
  return {{"role", "assistant"},
          {"content", nullptr},
          {"tool_calls",
           {{{"id", "c"}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}}}}};
}

struct Scope {
  Texts prunable;
  Texts question;
};

Scope ScopeOf(const ordered_json& messages, ChatOptions options = {},
              const std::string& chat_template = kTemplate) {
  const ByteTokenizer tokenizer(chat_template);
  if (options.scope == PruneScope::kAll) options.scope = PruneScope::kNew;
  const ChatPrompt prompt = EncodeChat(ParseMessages(messages, "test"), tokenizer, options);
  const auto texts = [&](const std::vector<PositionSpan>& spans) {
    Texts found;
    for (const PositionSpan& s : spans) {
      found.push_back(
          tokenizer.Decode(std::span(prompt.tokens)
                               .subspan(static_cast<size_t>(s.begin), static_cast<size_t>(s.end - s.begin)),
                           true));
    }
    return found;
  };
  EXPECT_TRUE(prompt.apart);
  return {texts(Outside(prompt.protected_spans, std::ssize(prompt.tokens))), texts(prompt.question)};
}

TEST(ChatScope, ANewResultIsPrunableAndItsCallAsks) {
  const Scope scope = ScopeOf({Said("system", Long('s')), Said("user", Long('u')),
                               Said("assistant", Long('a')), Said("user", "Where is it?"),
                               Called("grep", {{"pattern", "needle \"x\""}}), Said("tool", Long('r'))});
  EXPECT_THAT(scope.prunable, ElementsAre(Long('r', 398)));
  EXPECT_THAT(scope.question, ElementsAre("Where is it?", "le \\\"x\\\""));
}

TEST(ChatScope, ALongUserMessageIsPrunableButForItsEnd) {
  const Scope scope = ScopeOf({Said("user", Long('o')), Said("assistant", "ok"), Said("user", Long('d')),
                               Said("user", Long('e') + "Who?")});
  EXPECT_THAT(scope.prunable, ElementsAre(Long('d', 398), Long('e', 398 + 4 - kQuestionEnd)));
  EXPECT_THAT(scope.question, ElementsAre(Long('e') + "Who?"));
}

TEST(ChatScope, WhatIsShortProtectedOrTheQuestionStays) {
  ordered_json shielded = Said("user", Long('p')), asking = Said("user", Long('q'));
  shielded["protect"] = true;
  asking["question"] = true;
  const Scope scope = ScopeOf({Said("tool", Long('t', 200)), shielded, asking, Said("developer", Long('d')),
                               Said("tool", Long('r'))});
  EXPECT_THAT(scope.prunable, ElementsAre(Long('r', 398)));
  EXPECT_THAT(scope.question, ElementsAre(Long('q')));
  EXPECT_THAT(ScopeOf(ordered_json::array({Said("user", "Hi")})).prunable, IsEmpty());
  EXPECT_THAT(ScopeOf({Said("user", Long('u')), Said("assistant", "ok")}).prunable, IsEmpty());
}

// An answer that the model is to continue is none yet.
TEST(ChatScope, AnAnswerThatGoesOn) {
  ChatOptions options;
  options.continue_final_message = true;
  const Scope scope = ScopeOf(
      {Said("user", "Who?"), Called("read", {{"n", 5}}), Said("tool", Long('r')), Said("assistant", "It is")},
      options);
  EXPECT_THAT(scope.prunable, ElementsAre(Long('r', 398)));
  EXPECT_THAT(scope.question, ElementsAre("Who?", " {\"n\": 5"));
}

// Results of earlier calls are between the user's text and this call: they are not read again for it.
TEST(ChatScope, ALaterCallAsksAlone) {
  const Scope scope =
      ScopeOf({Said("user", "Who?"), Called("read", {{"n", 5}}), Said("tool", Long('r')),
               Called("read", {{"n", 678}}), Said("tool", Long('s')), Said("tool", Long('t'))});
  EXPECT_THAT(scope.prunable, ElementsAre(Long('s', 398), Long('t', 398)));
  EXPECT_THAT(scope.question, ElementsAre("read\", \"arguments\": {\"n\": 678"));
}

// A template that knows no tools gets results as user messages, and they are still results.
TEST(ChatScope, ResultsAsText) {
  ChatOptions options;
  options.tools = {{{"type", "function"}, {"function", {{"name", "read"}, {"description", Long('t')}}}}};
  const Scope scope =
      ScopeOf({Said("user", "Who?"), Called("read", {{"path", "x.txt"}}), Said("tool", Long('r'))}, options,
              "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}\n{% endfor %}");
  ASSERT_EQ(scope.prunable.size(), 1u);
  EXPECT_THAT(scope.prunable.front(), testing::HasSubstr(Long('r')));
  EXPECT_THAT(scope.prunable.front(), testing::Not(testing::HasSubstr("ttt")));
  EXPECT_THAT(scope.question, ElementsAre("Who?", testing::HasSubstr("x.txt")));
}

// What the template changes cannot be told apart from its own words: it stays.
TEST(ChatScope, ATextThatTheTemplateChanges) {
  const Scope scope = ScopeOf({Said("user", "Who?"), Said("tool", Long('r'))}, {},
                              "{% for m in messages %}{{ m.content | length }}{{ m.content }}{% endfor %}");
  EXPECT_THAT(scope.prunable, IsEmpty());
}

TEST(ChatScope, AutoIsNewForAgents) {
  const ByteTokenizer tokenizer(kTemplate);
  const auto apart = [&](const ordered_json& messages, const ordered_json& tools) {
    return EncodeChat(ParseMessages(messages, "test"), tokenizer,
                      {.tools = tools, .scope = PruneScope::kAuto})
        .apart;
  };
  const ordered_json none = ordered_json::array();
  EXPECT_FALSE(apart(ordered_json::array({Said("user", Long('u'))}), none));
  EXPECT_TRUE(apart({Said("user", "x"), Said("tool", Long('u'))}, none));
  EXPECT_TRUE(apart({Said("user", "x"), Called("f", {{"a", 1}}), Said("user", "y")}, none));
  EXPECT_TRUE(apart(ordered_json::array({Said("user", "x")}),
                    {{{"type", "function"}, {"function", {{"name", "f"}}}}}));
}

TEST(ChatScope, CallsInText) {
  const ordered_json calls = {
      {{"function", {{"name", "f"}, {"arguments", {{"a", "one"}, {"b", {2, true}}}}}}}};
  const std::string text = "..f(a='one', b=[2, True])..";
  EXPECT_EQ(CallsIn(text, 0, text.size(), calls), (std::pair<size_t, size_t>{2, text.find("2") + 1}));
  EXPECT_EQ(CallsIn("nothing", 0, 7, calls), (std::pair<size_t, size_t>{0, 0}));
  EXPECT_EQ(CallsIn(text, 5, 5, calls), (std::pair<size_t, size_t>{5, 5}));
  EXPECT_EQ(CallsIn(text, 0, text.size(), ordered_json::array()), (std::pair<size_t, size_t>{0, 0}));
}

TEST(ChatScope, AtMostSixtyFourNewTexts) {
  ordered_json messages = ordered_json::array();
  for (int i = 0; i < 70; ++i) messages.push_back(Said("tool", Long('r')));
  EXPECT_EQ(ScopeOf(messages).prunable.size(), static_cast<size_t>(kMaxMarkedMessages));
}

}  // namespace
}  // namespace coppice
