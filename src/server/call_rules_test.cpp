#include "server/call_rules.h"

#include <gtest/gtest.h>

#include "engine/thinking.h"
#include "grammar/grammar_test_support.h"
#include "server/answer_form.h"
#include "server/bare_calls.h"
#include "server/errors.h"
#include "server/tool_calls_test_support.h"

namespace coppice {
namespace {

using nlohmann::ordered_json;

Parameters Calling(ToolChoice choice) {
  Parameters p;
  p.tools = ordered_json::parse(R"([
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
      "s": {"type": "string"}, "n": {"type": "integer", "minimum": 0}, "e": {"enum": ["x", "y"]},
      "o": {"type": "object", "properties": {"k": {"type": "boolean"}}, "required": ["k"]}}, "required": ["s"]}}},
    {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {}}}},
    {"type": "function", "function": {"name": "h", "parameters":
      {"type": "object", "properties": {}, "additionalProperties": false}}}])");
  p.tool_choice = choice;
  return p;
}

std::shared_ptr<const Automaton> Rules(ToolFormat format, const Parameters& p,
                                       const std::optional<Thinking>& thinking = {}) {
  AnswerForms forms;
  return forms.Compiled(p, format, nullptr, thinking).automaton;
}

// Texts that are calls under the grammar are calls to the parser as well.
void ExpectCalls(ToolFormat format, const std::vector<std::string>& texts) {
  const Parameters p = Calling(ToolChoice::kAny);
  const auto rules = Rules(format, p);
  for (const std::string& text : texts) {
    EXPECT_TRUE(Fits(rules, text)) << text;
    const std::string written = Written(AnswerParser(format, *p.tools, true), text, 5);
    EXPECT_TRUE(written.ends_with(")|")) << written;
  }
}

void ExpectNone(ToolFormat format, const std::vector<std::string>& texts) {
  const auto rules = Rules(format, Calling(ToolChoice::kAny));
  for (const std::string& text : texts) EXPECT_FALSE(Fits(rules, text)) << text;
}

TEST(CallRules, Xml) {
  const std::string head = "<tool_call>\n<function=f>\n<parameter=s>\n";
  const std::string tail = "\n</parameter>\n</function>\n</tool_call>";
  ExpectCalls(ToolFormat::kXml,
              {head + "any <text> {\nof lines" + tail, head + tail,
               head + "a\n</parameter>\n<parameter=n>\n12\n</parameter>\n<parameter=e>\nx" + tail,
               head + "a\n</parameter>\n<parameter=o>\n{\"k\": true}" + tail,
               "<tool_call>\n<function=g>\n<parameter=free>\n1\n</parameter>\n</function>\n</tool_call>",
               "<tool_call>\n<function=h>\n</function>\n</tool_call>",
               head + "a" + tail + "\n<tool_call>\n<function=h>\n</function>\n</tool_call>"});
  ExpectNone(
      ToolFormat::kXml,
      {"text", "<tool_call>\n<function=f>\n</function>\n</tool_call>",
       head + "a\n</parameter>\n<parameter=n>\n-1" + tail, head + "a\n</parameter>\n<parameter=e>\nz" + tail,
       head + "a\n</parameter>\n<parameter=o>\n{}" + tail,
       "<tool_call>\n<function=z>\n</function>\n</tool_call>",
       "<tool_call>\n<function=h>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>"});
}

TEST(CallRules, ArgKeys) {
  const std::string head = "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>";
  const std::string tail = "</arg_value>\n</tool_call>";
  ExpectCalls(ToolFormat::kArgKeys,
              {head + "any <text> {\nof lines" + tail, head + tail,
               "<tool_call>f<arg_key>s</arg_key><arg_value>a</arg_value></tool_call>",
               head +
                   "a</arg_value>\n<arg_key>n</arg_key>\n<arg_value>12</arg_value>\n<arg_key>e</"
                   "arg_key>\n<arg_value>x" +
                   tail,
               head + "a</arg_value><arg_key>o</arg_key><arg_value>{\"k\": true}" + tail,
               "<tool_call>g\n<arg_key>free</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
               "<tool_call>h\n</tool_call>", head + "a" + tail + "\n<tool_call>h</tool_call>"});
  ExpectNone(ToolFormat::kArgKeys, {"<tool_call>f\n</tool_call>", "<tool_call>k\n</tool_call>",
                                    head + "a</arg_value><arg_key>n</arg_key><arg_value>-1" + tail,
                                    head + "a</arg_value><arg_key>e</arg_key><arg_value>z" + tail,
                                    "<tool_call>h<arg_key>a</arg_key><arg_value>b" + tail});
}

TEST(CallRules, Invokes) {
  const std::string head = "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"s\">";
  const std::string tail = "</parameter>\n</invoke>\n</minimax:tool_call>";
  ExpectCalls(
      ToolFormat::kInvokes,
      {head + "any <text>" + tail, head + "a</parameter>\n<parameter name=\"n\">12" + tail,
       "<minimax:tool_call><invoke name=\"h\"></invoke><invoke name=\"g\"><parameter name=\"free\">1" +
           tail});
  ExpectNone(ToolFormat::kInvokes, {"<minimax:tool_call><invoke name=\"f\"></invoke></minimax:tool_call>",
                                    head + "a</parameter><parameter name=\"n\">-1" + tail});
}

TEST(CallRules, Python) {
  const auto list = [](const std::string& calls) {
    return "<|tool_call_start|>[" + calls + "]<|tool_call_end|>";
  };
  ExpectCalls(ToolFormat::kPython, {list("f(s=\"a\")"), list("f(s=\"a\", n=12, e=\"x\", o={\"k\": true})"),
                                    list("f(s=\"a\", o={\"k\":false})"), list("g()"), list("g(x=[1, \"a\"])"),
                                    list("h()"), list("h(), f(s=\"\")")});
  ExpectNone(ToolFormat::kPython, {list(""), list("f()"), list("f(n=1)"), list("f(s=\"a\" n=1)"),
                                   list("f(s=1)"), list("h(a=1)"), list("z()")});
}

TEST(CallRules, Gemma) {
  const auto call = [](const std::string& text) { return "<|tool_call>call:" + text + "<tool_call|>"; };
  ExpectCalls(ToolFormat::kGemma4,
              {call("f{s:<|\"|>a, b}<|\"|>}"), call("f{s:<|\"|><|\"|>,n:3,e:<|\"|>y<|\"|>}"),
               call("f{s:<|\"|>a<|\"|>,o:{k:true}}"), call("g{a:{x:[1,<|\"|>x<|\"|>],y:{}}}"), call("g{}"),
               call("g{a:null}"), call("h{}"), call("h{}") + call("g{}")});
  ExpectNone(ToolFormat::kGemma4, {call("f{}"), call("f{n:3}"), call("f{s:a}"),
                                   call("f{s:<|\"|>a<|\"|>,e:<|\"|>z<|\"|>}"), call("h{a:1}"), call("z{}"),
                                   call("f{s:<|\"|>a<|\"|>,o:{}}"), call("f{s:<|\"|>a<|\"|>,o:{k:1}}")});
}

TEST(CallRules, Channels) {
  const Parameters p = Calling(ToolChoice::kAny);
  const ThinkingForm form = ThinkingFormOf("<|start|>assistant<|channel|>final<|message|>").value();
  const std::string thought =
      "<|channel|>analysis<|message|>to=functions.f<|message|>?<|end|><|start|>assistant";
  const std::string call = " to=functions.f<|channel|>commentary json<|message|>{\"s\": \"a\"}";
  const std::string other = "<|channel|>commentary to=functions.h <|constrain|>json<|message|>{}";
  const auto must = Rules(ToolFormat::kChannels, p, Thinking{form, ThinkingStart::kBefore});
  for (const std::string& text : {call, other, thought + call, thought + thought + other}) {
    EXPECT_TRUE(Fits(must, text)) << text;
  }
  const std::string final = "<|channel|>final<|message|>Any text.";
  for (const std::string& text : {final, thought, thought + final, thought + other + call})
    EXPECT_FALSE(Fits(must, text)) << text;
  const auto may =
      Rules(ToolFormat::kChannels, Calling(ToolChoice::kAuto), Thinking{form, ThinkingStart::kBefore});
  for (const std::string& text : {call, thought + other, final, thought + final})
    EXPECT_TRUE(Fits(may, text)) << text;
  const auto inside = Rules(ToolFormat::kChannels, p, Thinking{form, ThinkingStart::kInside});
  EXPECT_TRUE(Fits(inside, "Hm<|end|><|start|>assistant" + call));
  EXPECT_FALSE(Fits(inside, call));
}

TEST(CallRules, Atem) {
  const ThinkingForm form = ThinkingFormOf("<|start|>assistant to=self<|message|>").value();
  const std::string thought = " to=self<|message|>to=f<|message|>?<|eom|><|start|>assistant";
  const std::string call =
      " to=f<|message|><atem:function_calls>\n<atem:invoke name=\"f\">\n<atem:parameter "
      "name=\"s\">a</atem:parameter>\n"
      "</atem:invoke>\n</atem:function_calls>";
  const auto must =
      Rules(ToolFormat::kAtem, Calling(ToolChoice::kAny), Thinking{form, ThinkingStart::kBefore});
  for (const std::string& text : {call, thought + call, thought + thought + call})
    EXPECT_TRUE(Fits(must, text)) << text;
  const std::string final = " to=user<|message|>Any text.";
  for (const std::string& text : {final, thought, thought + final}) EXPECT_FALSE(Fits(must, text)) << text;
  const auto may =
      Rules(ToolFormat::kAtem, Calling(ToolChoice::kAuto), Thinking{form, ThinkingStart::kBefore});
  for (const std::string& text : {call, thought + call, final, thought + final})
    EXPECT_TRUE(Fits(may, text)) << text;
  const Parameters p = Calling(ToolChoice::kAny);
  EXPECT_EQ(Written(AnswerParser(ToolFormat::kAtem, *p.tools, true), call, 5), R"(f({"s":"a"})|)");
}

TEST(CallRules, BehindThinking) {
  ThinkingForm form = ThinkingFormOf("{% if enable_thinking %}<think></think>").value();
  const std::string call = "<tool_call>\n<function=h>\n</function>\n</tool_call>";
  const std::string thought = "<think>\nIs <tool_call>{ one?\n</think>\n\n";
  const auto before =
      Rules(ToolFormat::kXml, Calling(ToolChoice::kAny), Thinking{form, ThinkingStart::kBefore});
  EXPECT_TRUE(Fits(before, call));
  EXPECT_TRUE(Fits(before, thought + call));
  EXPECT_FALSE(Fits(before, thought + "text"));
  const auto closed =
      Rules(ToolFormat::kXml, Calling(ToolChoice::kAny), Thinking{form, ThinkingStart::kClosed});
  EXPECT_TRUE(Fits(closed, call));
  EXPECT_FALSE(Fits(closed, thought + call));
  form.has_switch = false;
  EXPECT_FALSE(
      Fits(Rules(ToolFormat::kXml, Calling(ToolChoice::kAny), Thinking{form, ThinkingStart::kBefore}),
           thought + call));
  const auto may =
      Rules(ToolFormat::kXml, Calling(ToolChoice::kAuto), Thinking{form, ThinkingStart::kInside});
  EXPECT_TRUE(Fits(may, "<tool_call>{</think>text"));
  EXPECT_TRUE(Fits(may, "Hm</think>text " + call));
  EXPECT_FALSE(Fits(may, "Hm</think><tool_call>{"));
}

TEST(CallRules, AStrictFunctionMustBeKept) {
  Parameters p;
  p.tools =
      ordered_json::parse(R"([{"type": "function", "function": {"name": "f", "strict": true, "parameters":
    {"type": "object", "properties": {"s": {"type": "string", "pattern": "^a$"}}}}}])");
  EXPECT_THROW(Rules(ToolFormat::kXml, p), HttpError);
  EXPECT_NO_THROW(Rules(ToolFormat::kPython, p));
}

}  // namespace
}  // namespace coppice
