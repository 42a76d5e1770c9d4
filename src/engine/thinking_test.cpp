#include "engine/thinking.h"

#include <gtest/gtest.h>

#include <random>

namespace coppice {
namespace {

constexpr std::string_view kQwen =
    R"({{- '<|im_start|>assistant\n<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' }})";
constexpr std::string_view kHarmony =
    R"({{- "<|start|>assistant<|channel|>final<|message|>" + message.content }})";
constexpr std::string_view kMuse = R"({{- '<|start|>assistant to=self<|message|>' + x + '<|eom|>' -}})";
constexpr std::string_view kGemma = R"({{- '<|channel>thought\n' + thinking_text + '\n<channel|>' -}})";

ThinkingForm Form(std::string_view chat_template) { return ThinkingFormOf(chat_template).value(); }

// The splitter's parts, each thought in braces.
struct Reader {
  ThinkingSplitter splitter;
  std::string all;
  bool thinks = false;

  void Add(const std::vector<ThinkingPart>& parts) {
    for (const ThinkingPart& part : parts) {
      if (part.is_thought != thinks) all += part.is_thought ? "{" : "}";
      thinks = part.is_thought;
      all += part.text;
    }
  }
  std::string End() {
    Add(splitter.Flush());
    return thinks ? all + "}" : all;
  }
};

std::string Whole(std::string_view text, const ThinkingForm& form, ThinkingStart start) {
  Reader reader{ThinkingSplitter({form, start}), "", false};
  reader.Add(reader.splitter.Push(text));
  return reader.End();
}

// The same split is made of the text in two pieces, wherever it is cut, and byte by byte.
std::string Split(std::string_view text, std::string_view chat_template,
                  ThinkingStart start = ThinkingStart::kBefore) {
  const ThinkingForm form = Form(chat_template);
  const std::string whole = Whole(text, form, start);
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    Reader two{ThinkingSplitter({form, start}), "", false};
    two.Add(two.splitter.Push(text.substr(0, cut)));
    two.Add(two.splitter.Push(text.substr(cut)));
    EXPECT_EQ(two.End(), whole) << "cut at " << cut << " of " << text;
  }
  Reader bytes{ThinkingSplitter({form, start}), "", false};
  for (const char c : text) bytes.Add(bytes.splitter.Push(std::string_view(&c, 1)));
  EXPECT_EQ(bytes.End(), whole) << text;
  return whole;
}

TEST(Thinking, BetweenMarks) {
  EXPECT_EQ(Split("<think>\nHm, é\n</think>\n\nYes.\n", kQwen), "{Hm, é}Yes.\n");
  EXPECT_EQ(Split("\n <think>a</think>b", kQwen), "{a}b");
  EXPECT_EQ(Split("<think></think>b", kQwen), "b");
  EXPECT_EQ(Split("<think>\n\n</think>\n\nb", kQwen), "b");
  EXPECT_EQ(Split("<think>a </b> <</think>b", kQwen), "{a </b> <}b");
  EXPECT_EQ(Split("<think> a \n b \n</think>", kQwen), "{a \n b}");
  EXPECT_EQ(Split("<think>a</think> <think>b</think> c", kQwen), "{a\n\nb}c");
  EXPECT_EQ(Split("<think>a <think> b</think>c", kQwen), "{a <think> b}c");
}

TEST(Thinking, NoneOfIt) {
  for (const std::string_view text : {"", " ", "\n\nYes", " <thin", "<b>x</b>", "Say <think> a </think>",
                                      "</think>x", "<thinking>a</thinking>b"}) {
    EXPECT_EQ(Split(text, kQwen), text);
    EXPECT_EQ(Split(text, kQwen, ThinkingStart::kAnswer), text);
  }
  EXPECT_EQ(Split("<think>a</think>b", kQwen, ThinkingStart::kAnswer), "<think>a</think>b");
}

TEST(Thinking, ThatDoesNotEnd) {
  EXPECT_EQ(Split("<think>\nHm, ", kQwen), "{Hm,}");
  EXPECT_EQ(Split("<think>", kQwen), "");
  EXPECT_EQ(Split("<think>a</thi", kQwen), "{a</thi}");
  EXPECT_EQ(Split("\nHm", kQwen, ThinkingStart::kInside), "{Hm}");
}

TEST(Thinking, BeganInThePrompt) {
  EXPECT_EQ(Split("Hm\n</think>\n\nYes", kQwen, ThinkingStart::kInside), "{Hm}Yes");
  EXPECT_EQ(Split("</think>Yes", kQwen, ThinkingStart::kInside), "Yes");
  EXPECT_EQ(Split("<think>a</think>b", kQwen, ThinkingStart::kClosed), "{a}b");
  EXPECT_EQ(Split("b", kQwen, ThinkingStart::kClosed), "b");
}

TEST(Thinking, Gemma4MayThinkWithinItsAnswer) {
  EXPECT_EQ(Split("<|channel>thought\nHm\n<channel|>Yes", kGemma), "{Hm}Yes");
  EXPECT_EQ(Split("Yes.<|channel>thought\nHm<channel|>\nNo.", kGemma), "Yes.{Hm}No.");
  EXPECT_EQ(Split("<|channel>thought\n<channel|>Yes", kGemma), "Yes");
  EXPECT_EQ(Split("a <|chan b", kGemma), "a <|chan b");
}

TEST(Thinking, Channels) {
  EXPECT_EQ(Split("<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>Yes",
                  kHarmony),
            "{Hm}Yes");
  EXPECT_EQ(Split("<|channel|>final<|message|>Yes<|return|>", kHarmony), "Yes");
  EXPECT_EQ(Split("<|channel|>final <|constrain|>json<|message|>{}", kHarmony), "{}");
  EXPECT_EQ(Split("<|channel|>analysis<|message|>Hm", kHarmony), "{Hm}");
  EXPECT_EQ(
      Split("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>",
            kHarmony),
      "{a\n\nb}");
  EXPECT_EQ(
      Split("<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>final<|message|>Yes",
            kHarmony),
      "I look.\n\nYes");
  EXPECT_EQ(
      Split("<|channel|>analysis<|message|><|end|><|start|>assistant<|channel|>final<|message|>", kHarmony),
      "");
  // Cut within a header, and text of a model that writes none.
  EXPECT_EQ(Split("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|chan", kHarmony), "{a}");
  EXPECT_EQ(Split("<|channel|>fin", kHarmony), "");
  EXPECT_EQ(Split("Yes, to=you <|", kHarmony), "Yes, to=you <|");
  EXPECT_EQ(Split("to", kHarmony), "to");
  EXPECT_EQ(Split(" more", kHarmony, ThinkingStart::kAnswer), " more");
  EXPECT_EQ(
      Split("Hm<|end|><|start|>assistant<|channel|>final<|message|>Yes", kHarmony, ThinkingStart::kInside),
      "{Hm}Yes");
}

TEST(Thinking, MessagesToFunctionsStayAsTheyAre) {
  const std::string call =
      "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>";
  EXPECT_EQ(Split(call, kHarmony), call);
  EXPECT_EQ(Split("<|channel|>analysis<|message|>Hm<|end|><|start|>assistant" + call, kHarmony),
            "{Hm}<|start|>assistant" + call);
  const std::string first = " to=functions.f<|channel|>commentary json<|message|>{}";
  EXPECT_EQ(Split(first, kHarmony), first);
}

TEST(Thinking, MuseGlimmerThinksToItself) {
  EXPECT_EQ(Split(" to=self<|message|>Hm<|eom|><|start|>assistant to=user<|message|>Yes<|eot|>", kMuse),
            "{Hm}Yes");
  EXPECT_EQ(Split("<|message|>Yes", kMuse), "Yes");
}

// Any text of marks, white space and letters: pieces of any size give the split of the whole, and nothing but
// marks, headers and white space is lost.
TEST(Thinking, PiecesOfAnySizeGiveTheSplitOfTheWhole) {
  const std::vector<std::string> words = {"<think>",
                                          "</think>",
                                          "<think",
                                          ">",
                                          "\n",
                                          " ",
                                          "a",
                                          "é",
                                          "<",
                                          "<|channel|>",
                                          "<|message|>",
                                          "<|end|>",
                                          "<|start|>",
                                          "assistant",
                                          "analysis",
                                          "final",
                                          " to=functions.f",
                                          "<|channel>thought",
                                          "<channel|>"};
  std::mt19937 random(7);
  const auto below = [&](size_t count) { return static_cast<size_t>(random() % count); };
  for (const std::string_view chat_template : {kQwen, kHarmony, kMuse, kGemma}) {
    for (int round = 0; round < 300; ++round) {
      const auto start = static_cast<ThinkingStart>(below(4));
      std::string text;
      for (size_t words_left = below(12); words_left > 0; --words_left) text += words[below(words.size())];
      const std::string whole = Split(text, chat_template, start);
      EXPECT_LE(std::ranges::count(whole, 'a'), std::ranges::count(text, 'a'));
    }
  }
}

TEST(Thinking, MarksThatAreControlTokensAreNeverShown) {
  ThinkingSplitter splitter({Form(kQwen), ThinkingStart::kBefore});
  Reader reader{splitter, "", false};
  reader.Add(reader.splitter.PushMark("</think>"));
  reader.Add(reader.splitter.PushMark("<think>"));
  reader.Add(reader.splitter.Push("a"));
  reader.Add(reader.splitter.PushMark("<think>"));
  EXPECT_TRUE(reader.splitter.thinking());
  reader.Add(reader.splitter.PushMark("</think>"));
  reader.Add(reader.splitter.Push("b"));
  reader.Add(reader.splitter.PushMark("</think>"));
  reader.Add(reader.splitter.PushMark("<think>"));
  reader.Add(reader.splitter.Push("c"));
  EXPECT_FALSE(reader.splitter.thinking());
  EXPECT_EQ(reader.End(), "{a}bc");
}

TEST(ThinkingForm, OfTemplates) {
  EXPECT_FALSE(ThinkingFormOf("{{ message.content }}"));
  EXPECT_FALSE(ThinkingFormOf("{{ '<|start_header_id|>assistant' }}"));
  EXPECT_EQ(Form(kQwen).force, "\n</think>\n\n");
  EXPECT_EQ(Form("{{ '<think>' + thinking + '</think>' }}").force, "</think>");
  EXPECT_EQ(Form(kGemma).close, "<channel|>");
  EXPECT_EQ(Form("'[THINK]' + t + '[/THINK]'").open, "[THINK]");
  EXPECT_EQ(Form("'<think{}>'.format(HYTK) '</think{}>'.format(HYTK) HYTK = ':opensource'").close,
            "</think:opensource>");
  EXPECT_TRUE(Form(kHarmony).channels);
  EXPECT_FALSE(Form(kQwen).has_switch);
  EXPECT_FALSE(Form("{{ '<think>' + message.thinking + '</think>' }}").has_switch);
  EXPECT_TRUE(Form("{% if enable_thinking %}<think>{% else %}</think>{% endif %}").has_switch);
}

TEST(ThinkingForm, WhereAnAnswerBegins) {
  const auto start = [](std::string_view prompt, std::string_view chat_template = kQwen) {
    return ThinkingStartOf(Form(chat_template), prompt);
  };
  EXPECT_EQ(start("<|im_start|>assistant\n"), ThinkingStart::kBefore);
  EXPECT_EQ(start("<|im_start|>assistant\n<think>\n"), ThinkingStart::kInside);
  EXPECT_EQ(start("<|im_start|>assistant\n<think>\n\n</think>\n\n"), ThinkingStart::kClosed);
  EXPECT_EQ(start("<|im_start|>user\nWhat is <think>?<|im_end|>\n<|im_start|>assistant\n"),
            ThinkingStart::kBefore);
  EXPECT_EQ(start("<|start|>assistant", kHarmony), ThinkingStart::kBefore);
  EXPECT_EQ(start("<|turn>model\n<|channel>thought\n<channel|>", kGemma), ThinkingStart::kClosed);
  const auto continued = [](std::string_view text) { return ThinkingStartOf(Form(kQwen), "", text); };
  EXPECT_EQ(continued("It is"), ThinkingStart::kAnswer);
  EXPECT_EQ(continued("<think>\nHm"), ThinkingStart::kInside);
  EXPECT_EQ(continued("<think>a</think>It"), ThinkingStart::kAnswer);
}

TEST(ThinkingForm, VariablesThatTheTemplateKnows) {
  const auto variables = [](std::string_view chat_template, const ThinkingWish& wish) {
    return ThinkingVariables(chat_template, wish).dump();
  };
  EXPECT_EQ(variables("{% if enable_thinking %}", {.on = false}), R"({"enable_thinking":false})");
  EXPECT_EQ(variables("{% if enable_thinking %}", {}), "{}");
  EXPECT_EQ(variables("{{ message.thinking }} {{ not_thinking }}", {.on = true}), "{}");
  EXPECT_EQ(variables("{% if thinking %}", {.on = true}), R"({"thinking":true})");
  EXPECT_EQ(variables("{% if thinking_budget %}", {.budget = 5}), R"({"thinking_budget":5})");
  EXPECT_EQ(variables("{% if thinking_budget %}", {.on = false, .budget = 5}), R"({"thinking_budget":0})");
  EXPECT_EQ(variables("Reasoning: {{ reasoning_effort }} medium", {.effort = "high"}),
            R"({"reasoning_effort":"high"})");
  EXPECT_EQ(variables("Reasoning: {{ reasoning_effort }} medium", {.on = false, .effort = "none"}),
            R"({"reasoning_effort":"low"})");
  EXPECT_EQ(variables("reasoning_strength if reasoning_strength else 'high'", {.effort = "none"}),
            R"({"reasoning_strength":"low"})");
  EXPECT_EQ(variables("reasoning_effort in ['high', 'low', 'no_think']", {.on = false}),
            R"({"reasoning_effort":"no_think"})");
  EXPECT_EQ(variables("reasoning_effort in ['high', 'low', 'no_think']", {.on = true, .effort = "medium"}),
            R"({"reasoning_effort":"high"})");
}

}  // namespace
}  // namespace coppice
