#include <gtest/gtest.h>

#include <map>
#include <random>

#include "server/bare_calls.h"
#include "server/tool_calls.h"
#include "server/tool_calls_test_support.h"
#include "server/typed_value.h"

namespace coppice {
namespace {

using nlohmann::ordered_json;

const ordered_json kTools = ordered_json::parse(R"([
  {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
    "s": {"type": "string"}, "n": {"type": "integer"}, "x": {"type": "number"}, "b": {"type": "boolean"},
    "o": {"type": "object"}, "l": {"type": "array", "items": {"type": "integer"}}, "e": {"enum": ["1", "a"]},
    "u": {"type": ["string", "null"]}, "v": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "r": {"$ref": "#/$defs/R"}}, "$defs": {"R": {"type": "integer"}}}}},
  {"type": "function", "function": {"name": "g-h.i"}}
])");

// The same is made of the answer in pieces of every size.
std::string Read(ToolFormat format, std::string_view answer) {
  const AnswerParser parser(format, kTools, true);
  const std::string whole = Written(parser, answer, std::max<size_t>(answer.size(), 1));
  for (size_t step = 1; step < answer.size(); step = step < 8 ? step + 1 : 2 * step)
    EXPECT_EQ(Written(parser, answer, step), whole) << "in pieces of " << step << ": " << answer;
  for (size_t cut = 1; cut < answer.size(); ++cut) {
    AnswerParser two(format, kTools, true);
    WrittenParts written;
    for (const auto& parts : {two.Push(answer.substr(0, cut)), two.Push(answer.substr(cut)), two.Flush()})
      written.Add(parts);
    EXPECT_EQ(written.whole(), whole) << "cut at " << cut << " of " << answer;
  }
  return whole;
}

std::string Xml(std::string_view answer) { return Read(ToolFormat::kXml, answer); }
// A call of f with one argument.
std::string XmlOf(const std::string& key, const std::string& value) {
  return Xml("<tool_call>\n<function=f>\n<parameter=" + key + ">\n" + value +
             "\n</parameter>\n</function>\n</tool_call>");
}

TEST(XmlCalls, Whole) {
  EXPECT_EQ(XmlOf("s", "Oslo"), R"(f({"s":"Oslo"})|)");
  EXPECT_EQ(
      Xml("Let me look.\n\n<tool_call>\n<function=f>\n<parameter=s>\na\n</parameter>\n<parameter=n>\n5\n"
          "</parameter>\n</function>\n</tool_call>"),
      R"(Let me look.|f({"s":"a","n":5})|)");
  EXPECT_EQ(Xml("<tool_call>\n<function=g-h.i>\n</function>\n</tool_call>"), "g-h.i({})|");
  EXPECT_EQ(Xml("<tool_call><function=g-h.i></function></tool_call>"), "g-h.i({})|");
  EXPECT_EQ(Xml("<tool_call>\n<function=g-h.i>\n</function>\n</"
                "tool_call>\n<tool_call>\n<function=f>\n<parameter=n>\n"
                "1\n</parameter>\n</function>\n</tool_call>\n"),
            R"(g-h.i({})|f({"n":1})|)");
  EXPECT_EQ(Xml("<tool_call>\n<function=g-h.i>\n</function>\n<function=f>\n</function>\n</tool_call>"),
            "g-h.i({})|f({})|");
}

TEST(XmlCalls, ValuesHaveTheTypesOfTheSchema) {
  EXPECT_EQ(XmlOf("s", "5"), R"(f({"s":"5"})|)");
  EXPECT_EQ(XmlOf("s", "null"), R"(f({"s":"null"})|)");
  EXPECT_EQ(XmlOf("s", R"({"a": 1})"), R"(f({"s":"{\"a\": 1}"})|)");
  EXPECT_EQ(XmlOf("s", "  two\n\nlines \n"), R"(f({"s":"  two\n\nlines \n"})|)");
  EXPECT_EQ(XmlOf("s", ""), R"(f({"s":""})|)");
  EXPECT_EQ(XmlOf("n", "-12"), R"(f({"n":-12})|)");
  EXPECT_EQ(XmlOf("n", "3.0"), R"(f({"n":3})|)");
  EXPECT_EQ(XmlOf("n", "many"), R"(f({"n":"many"})|)");
  EXPECT_EQ(XmlOf("x", "1e-3"), R"(f({"x":0.001})|)");
  EXPECT_EQ(XmlOf("x", "7"), R"(f({"x":7})|)");
  EXPECT_EQ(XmlOf("b", "True"), R"(f({"b":true})|)");
  EXPECT_EQ(XmlOf("b", "false"), R"(f({"b":false})|)");
  EXPECT_EQ(XmlOf("o", R"({"k": [1, {"z": null}]})"), R"(f({"o":{"k":[1,{"z":null}]}})|)");
  EXPECT_EQ(XmlOf("o", "{'k': True}"), R"(f({"o":{"k":true}})|)");
  EXPECT_EQ(XmlOf("l", "[1,\n 2]"), R"(f({"l":[1,2]})|)");
  EXPECT_EQ(XmlOf("e", "1"), R"(f({"e":"1"})|)");
  EXPECT_EQ(XmlOf("u", "null"), R"(f({"u":null})|)");
  EXPECT_EQ(XmlOf("u", "word"), R"(f({"u":"word"})|)");
  EXPECT_EQ(XmlOf("v", "None"), R"(f({"v":null})|)");
  EXPECT_EQ(XmlOf("v", "3"), R"(f({"v":3})|)");
  EXPECT_EQ(XmlOf("r", "4"), R"(f({"r":4})|)");
  EXPECT_EQ(XmlOf("other", "4"), R"(f({"other":"4"})|)");
  EXPECT_EQ(XmlOf("other", "[4]"), R"(f({"other":[4]})|)");
}

TEST(XmlCalls, ValuesThatLookLikeMarks) {
  for (const std::string value :
       {"a </parameter> b", "</parameter>", "x\n</parameter>\ny",
        "<parameter=zz>\n1\n</parameter>\n<parameter=zz>", "</function>", "</parameter>\n</function>\nmore",
        "</tool_call>", "a</function>\n</tool_call> b", "<tool_call>{\"name\": \"f\"}</tool_call>",
        "<function=f>", "é \xF0\x9F\x99\x82"}) {
    EXPECT_EQ(XmlOf("s", value), "f(" + ordered_json({{"s", value}}).dump() + ")|") << value;
  }
}

TEST(XmlCalls, WithoutTheOuterTags) {
  const std::string call = "<function=f>\n<parameter=n>\n1\n</parameter>\n</function>";
  EXPECT_EQ(Xml(call), R"(f({"n":1})|)");
  EXPECT_EQ(Xml("Text.\n" + call + "\n</tool_call>"), R"(Text.|f({"n":1})|)");
  EXPECT_EQ(Xml("<tool_call>\n" + call), R"(f({"n":1})|)");
  EXPECT_EQ(Xml("<tool_call>\n" + call + "\nThat is it."), R"(f({"n":1})|That is it.)");
  EXPECT_EQ(Xml("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>"),
            R"(f({"n": 1})|)");
}

TEST(XmlCalls, WhatIsNoneIsText) {
  for (const std::string answer :
       {"<tool_call>", "<tool_call>\n<function=f", "<tool_call>\n<function=f>\n<parameter=s>\nabc",
        "<tool_call>\n<function=f>\n<parameter=s>\nabc\n</parameter>",
        "<tool_call>\n<function=zz>\n</function>\n</tool_call>", "<tool_call>\nprose\n</tool_call>",
        "a < b and <function", "<function=ff>\n</function>", "<function=>",
        "<tool_call>\n<function=f>\n<b>\n</function>\n</tool_call>",
        "<tool_call><function=f><parameter=></function></tool_call>"})
    EXPECT_EQ(Xml(answer), answer);
}

std::string Python(std::string_view answer) { return Read(ToolFormat::kPython, answer); }
std::string PythonOf(const std::string& arguments) {
  return Python("<|tool_call_start|>[f(" + arguments + ")]<|tool_call_end|>");
}

TEST(PythonCalls, Whole) {
  EXPECT_EQ(PythonOf(R"(s="Oslo")"), R"(f({"s":"Oslo"})|)");
  EXPECT_EQ(PythonOf(""), "f({})|");
  EXPECT_EQ(PythonOf("s='a', n=-3, x=1.5, b=True, u=None"),
            R"(f({"s":"a","n":-3,"x":1.5,"b":true,"u":null})|)");
  EXPECT_EQ(PythonOf("b=false, u=null"), R"(f({"b":false,"u":null})|)");
  EXPECT_EQ(PythonOf(R"(o={"k": [1, {'z': None}]}, l=[1, 2, ])"),
            R"(f({"o":{"k":[1,{"z":null}]},"l":[1,2]})|)");
  EXPECT_EQ(PythonOf(R"x(s="a \"b\" \\ \n \u00e9, (c)")x"), R"x(f({"s":"a \"b\" \\ \n é, (c)"})|)x");
  EXPECT_EQ(PythonOf("s='it's said'"), R"(f({"s":"it's said"})|)");
  EXPECT_EQ(PythonOf("s='two\nlines'"), R"(f({"s":"two\nlines"})|)");
  EXPECT_EQ(PythonOf(R"(s="""a "b", c""")"), R"(f({"s":"a \"b\", c"})|)");
  EXPECT_EQ(Python("Look: <|tool_call_start|>[f(n=1), g-h.i()]<|tool_call_end|> Done."),
            R"(Look:|f({"n":1})|g-h.i({})|Done.)");
  EXPECT_EQ(Python("<|tool_call_start|>[f(n=1)]"), R"(f({"n":1})|)");
  EXPECT_EQ(Python("<|tool_call_start|>f(n=1)<|tool_call_end|>"), R"(f({"n":1})|)");
}

TEST(PythonCalls, WhatIsNoneIsText) {
  for (const std::string answer :
       {"<|tool_call_start|>", "<|tool_call_start|>[", "<|tool_call_start|>[f(",
        "<|tool_call_start|>[f(n=)]<|tool_call_end|>", "<|tool_call_start|>[f(n=1]<|tool_call_end|>",
        "<|tool_call_start|>[zz(n=1)]<|tool_call_end|>", "<|tool_call_start|>[f(n=1), zz()]<|tool_call_end|>",
        "<|tool_call_start|>[f(1)]<|tool_call_end|>", "<|tool_call_start|>[]<|tool_call_end|>",
        "<|tool_call_start|>[f(s=\"open)]<|tool_call_end|>", "[f(n=1)]"})
    EXPECT_EQ(Python(answer), answer);
  const std::string deep = "<|tool_call_start|>[f(l=" + std::string(2000, '[') + ")]<|tool_call_end|>";
  EXPECT_EQ(Written(AnswerParser(ToolFormat::kPython, kTools, true), deep, 100), deep);
}

std::string Gemma(std::string_view answer) { return Read(ToolFormat::kGemma4, answer); }

TEST(GemmaCalls, Whole) {
  EXPECT_EQ(Gemma(R"(<|tool_call>call:f{s:<|"|>Oslo<|"|>}<tool_call|>)"), R"(f({"s":"Oslo"})|)");
  EXPECT_EQ(Gemma(R"(<|tool_call>call:f{n:5,b:true,u:null,x:-1.5}<tool_call|>)"),
            R"(f({"n":5,"b":true,"u":null,"x":-1.5})|)");
  EXPECT_EQ(Gemma(R"(<|tool_call>call:f{o:{k:<|"|>a, {b}: "c"<|"|>,l:[1,<|"|>x<|"|>]}}<tool_call|>)"),
            R"(f({"o":{"k":"a, {b}: \"c\"","l":[1,"x"]}})|)");
  EXPECT_EQ(Gemma(R"(<|tool_call>call:g-h.i{}<tool_call|>)"), "g-h.i({})|");
  EXPECT_EQ(Gemma(R"(Look. <|tool_call>call:f{n:1}<tool_call|><|tool_call>call:g-h.i{}<tool_call|>)"),
            R"(Look.|f({"n":1})|g-h.i({})|)");
  EXPECT_EQ(Gemma("<|tool_call>call:f{s:<|\"|>a\nb \\n<|\"|>}<tool_call|>"), R"(f({"s":"a\nb \\n"})|)");
  EXPECT_EQ(Gemma(R"(<|tool_call>call:f{s:some words}<tool_call|>)"), R"(f({"s":"some words"})|)");
  EXPECT_EQ(Gemma(R"(<|tool_call>call:f{"s":"json"})"), R"(f({"s":"json"})|)");
}

TEST(GemmaCalls, WhatIsNoneIsText) {
  for (const std::string answer :
       {"<|tool_call>", "<|tool_call>call:f", "<|tool_call>call:zz{}<tool_call|>",
        "<|tool_call>call:f{n:1<tool_call|>", "<|tool_call>call:f{s:<|\"|>a}<tool_call|>",
        "<|tool_call>f{}<tool_call|>", "call:f{}"})
    EXPECT_EQ(Gemma(answer), answer);
}

std::string Channel(std::string_view answer) { return Read(ToolFormat::kChannels, answer); }

TEST(ChannelCalls, Whole) {
  EXPECT_EQ(
      Channel("<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"s\": \"a\"}<|call|>"),
      R"(f({"s": "a"})|)");
  EXPECT_EQ(Channel("<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"s\": \"a\"}"),
            R"(f({"s": "a"})|)");
  EXPECT_EQ(Channel(" to=functions.f<|channel|>commentary json<|message|>{}"), "f({})|");
  EXPECT_EQ(Channel("I look.<|start|>assistant<|channel|>commentary to=functions.g-h.i<|message|>{}<|call|>"),
            "I look.|g-h.i({})|");
  EXPECT_EQ(Channel("<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{\"o\": {\"k\": "
                    "\"}\"}}<|call|>"
                    "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}"),
            R"(f({"o": {"k": "}"}})|f({})|)");
  EXPECT_EQ(Channel("<|channel|>commentary to=functions.f<|message|>{\"a\":"), R"(f({"a":...|)");
}

TEST(ChannelCalls, WhatIsNoneIsText) {
  for (const std::string answer :
       {"<|channel|>commentary to=functions.zz <|constrain|>json<|message|>{}",
        "<|channel|>commentary to=functions.f", "<|channel|>commentary to=functions.f<|message|>no object",
        "<|channel|>analysis to=python<|message|>print(1)", "say to=functions.f and go",
        "to=functions.f\n<|message|>{}"})
    EXPECT_EQ(Channel(answer), answer);
}

TEST(ToolForms, OfTemplates) {
  EXPECT_EQ(ToolFormatOf("<tool_call>\\n<function=example>"), ToolFormat::kXml);
  EXPECT_EQ(ToolFormatOf("<tool_call>\\n{\"name\": <function-name>}"), ToolFormat::kHermes);
  EXPECT_EQ(ToolFormatOf("<|tool_call>call:' + name"), ToolFormat::kGemma4);
  EXPECT_EQ(ToolFormatOf("to=\" }} {{ \"functions.\" + name + \"<|channel|>commentary \""),
            ToolFormat::kChannels);
  EXPECT_EQ(ToolFormatOf("'\\n<tool_call>' + tc.name }} <arg_key>{{ k }}</arg_key>"), ToolFormat::kArgKeys);
  EXPECT_EQ(ToolFormatOf("toolcall_begin_token = '<minimax:tool_call>'"), ToolFormat::kInvokes);
  EXPECT_EQ(ToolFormatOf("'<atem:function_calls>\\n<atem:invoke name=\"' + name"), ToolFormat::kAtem);
  EXPECT_EQ(ToolFormatOf("\"List of tools: <|tool_list_start|>[\""), ToolFormat::kPython);
}

const std::map<ToolFormat, std::string> kCalls = {
    {ToolFormat::kXml,
     "Hm.\n<tool_call>\n<function=f>\n<parameter=s>\na\n</parameter>\n<parameter=n>\n1\n</parameter>\n"
     "</function>\n</tool_call>\n<tool_call>\n<function=g-h.i>\n</function>\n</tool_call>"},
    {ToolFormat::kPython, "Hm. <|tool_call_start|>[f(s=\"a, b\", l=[1]), g-h.i()]<|tool_call_end|>"},
    {ToolFormat::kGemma4,
     "Hm. <|tool_call>call:f{s:<|\"|>a<|\"|>,l:[1]}<tool_call|><|tool_call>call:g-h.i{}<tool_call|>"},
    {ToolFormat::kArgKeys,
     "Hm.\n<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a</arg_value>\n</tool_call><tool_call>g-h.i</"
     "tool_call>"},
    {ToolFormat::kInvokes,
     "Hm.<minimax:tool_call><invoke name=\"f\"><parameter name=\"s\">a</parameter></invoke>\n<invoke "
     "name=\"g-h.i\">"
     "</invoke></minimax:tool_call>"},
    {ToolFormat::kAtem,
     "Hm.<|start|>assistant to=f<|message|><atem:function_calls>\n<atem:invoke name=\"f\">\n<atem:parameter "
     "name=\"s\">"
     "a</atem:parameter>\n</atem:invoke></atem:function_calls><|eom|>"},
    {ToolFormat::kChannels,
     "Hm.<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
     "{\"s\": \"a\"}<|call|><|start|>assistant to=functions.g-h.i<|channel|>commentary json<|message|>{}"}};

// Pieces of any size give what the whole gives, and no text is lost but marks and white space beside calls.
TEST(ToolForms, AnyTextEndsTheSameWay) {
  const std::vector<std::string> words = {"<tool_call>",
                                          "</tool_call>",
                                          "<function=f>",
                                          "</function>",
                                          "<parameter=s>",
                                          "</parameter>",
                                          "\n",
                                          " ",
                                          "a",
                                          "é",
                                          "[",
                                          "]",
                                          "f",
                                          "(",
                                          ")",
                                          "s=",
                                          "\"b\"",
                                          "'",
                                          ",",
                                          "{",
                                          "}",
                                          "<|tool_call_start|>",
                                          "<|tool_call_end|>",
                                          "<|tool_call>",
                                          "call:",
                                          "<tool_call|>",
                                          "s:",
                                          "<|\"|>",
                                          "<|channel|>",
                                          "commentary",
                                          " to=functions.f",
                                          "<|message|>",
                                          "<|call|>",
                                          "<|end|>",
                                          "<|start|>assistant",
                                          "<arg_key>s</arg_key>",
                                          "<arg_value>",
                                          "<minimax:tool_call>",
                                          "<invoke name=\"f\">",
                                          "</invoke>",
                                          "</minimax:tool_call>",
                                          "<parameter name=\"s\">",
                                          " to=f",
                                          "<atem:function_calls>",
                                          "<atem:invoke name=\"f\">",
                                          "</atem:invoke>",
                                          "</atem:function_calls>",
                                          "</arg_value>",
                                          "1"};
  std::mt19937 random(11);
  const auto below = [&](size_t count) { return static_cast<size_t>(random() % count); };
  for (const auto& [format, calls] : kCalls) {
    for (int round = 0; round < 2000; ++round) {
      std::string text = round % 2 == 0 ? calls : "";
      for (size_t left = below(round % 2 == 0 ? 3 : 14); left > 0; --left)
        text.insert(round % 2 == 0 ? below(text.size() + 1) : text.size(), words[below(words.size())]);
      if (round % 4 == 0) text.erase(below(text.size()), below(8));
      const AnswerParser parser(format, kTools, true);
      const std::string whole = Written(parser, text, std::max<size_t>(text.size(), 1));
      for (const size_t step : {1, 2, 3, 5, 8})
        ASSERT_EQ(Written(parser, text, step), whole) << step << ": " << text;
      if (whole.find(")|") == whole.npos && whole.find("...|") == whole.npos) {
        ASSERT_EQ(whole, text);
      }
    }
  }
}

TEST(ToolForms, AnswersThatNeverEndACallCostLittle) {
  for (const auto& [format, begin, piece] :
       {std::tuple(ToolFormat::kXml, "<tool_call>\n<function=f>\n<parameter=s>\n",
                   "</parameter>\n</function>\n </function>"),
        std::tuple(ToolFormat::kXml, "<tool_call>\n<function=f>\n<parameter=s>\n",
                   "</parameter>\n</function>\n</tool_call>"),
        std::tuple(ToolFormat::kPython, "<|tool_call_start|>[f(", "<|tool_call_end|>"),
        std::tuple(ToolFormat::kGemma4, "<|tool_call>call:f{", "<tool_call|>"),
        std::tuple(ToolFormat::kInvokes, "<minimax:tool_call><invoke name=\"f\"><parameter name=\"s\">",
                   "</parameter></invoke>x</minimax:tool_call>"),
        std::tuple(ToolFormat::kAtem, " to=f<|message|><atem:function_calls><atem:invoke name=\"f\">",
                   "</atem:invoke>x</atem:function_calls>"),
        std::tuple(ToolFormat::kArgKeys, "<tool_call>f<arg_key>s</arg_key><arg_value>",
                   "</arg_value>x</tool_call>"),
        std::tuple(ToolFormat::kChannels, "<|channel|>commentary to=functions.f<|message|>{", "<|call|>")}) {
    AnswerParser parser(format, kTools, true);
    parser.Push(begin);
    size_t bytes = 0;
    for (int i = 0; i < 20000; ++i) {
      for (const AnswerPart& part : parser.Push(piece)) bytes += part.text.size();
    }
    for (const AnswerPart& part : parser.Flush()) bytes += part.text.size();
    EXPECT_GE(bytes, 19000u * std::string_view(piece).size());
  }
}

}  // namespace
}  // namespace coppice
