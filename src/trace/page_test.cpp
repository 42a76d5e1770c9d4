#include "trace/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "trace/trace_test_support.h"

namespace coppice {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view kDataMark = "<script type=\"application/json\" id=\"trace\">";

int Count(std::string_view text, std::string_view part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// What a browser takes for the element's text: everything up to the next </script.
std::string DataText(const std::string& page) {
  const size_t begin = page.find(kDataMark) + kDataMark.size();
  return page.substr(begin, page.find("</script", begin) - begin);
}

nlohmann::json Data(const Trace& trace) { return nlohmann::json::parse(DataText(TracePage(trace))); }

TEST(TracePage, HoldsTheWholeTrace) {
  const nlohmann::json data = Data(SmallTrace());
  EXPECT_EQ(data["model"], "small.gguf");
  EXPECT_EQ(data["prune"], "lazyllm:layers=1,keep=0.5");
  EXPECT_EQ(data["backend"], "cpu (avx2)");
  EXPECT_EQ(data["promptTokens"], 8);
  EXPECT_TRUE(data["entered"].is_null());
  EXPECT_EQ(data["bytes"], nlohmann::json({1800, 300, 0}));
  EXPECT_EQ(data["denseBytes"], 2400);
  ASSERT_EQ(data["layers"].size(), 3u);
  EXPECT_EQ(data["layers"][0]["kept"], "0-7");
  EXPECT_TRUE(data["layers"][0]["ffn"].is_null()) << "as kept";
  EXPECT_EQ(data["layers"][1]["kept"], "0-2,5,7");
  EXPECT_EQ(data["layers"][1]["ffn"], "0,7");
  EXPECT_EQ(data["layers"][1]["density"], 0.25);
  EXPECT_EQ(data["layers"][1]["heads"].size(), 2u);
  EXPECT_TRUE(data["layers"][2]["kept"].is_null()) << "as in the layer before";
  EXPECT_EQ(data["layers"][2]["rows"], 4);
  ASSERT_EQ(data["steps"].size(), 2u);
  EXPECT_EQ(data["steps"][0]["position"], 8);
  EXPECT_EQ(data["steps"][0]["attended"], nlohmann::json({9, 8, 7}));
  EXPECT_EQ(data["steps"][0]["bytes"], nlohmann::json({2100, 200, 300}));
  EXPECT_EQ(data["steps"][0]["events"][0], nlohmann::json({1, "revived", "3-4,6"}));
}

TEST(TracePage, ShowsEveryTokenOnceWithBrokenCharactersMended) {
  const nlohmann::json texts = Data(SmallTrace())["texts"];
  EXPECT_EQ(texts, nlohmann::json({"The", " caf", "\xc3\xa9", "", " at", "\n", "\xef\xbf\xbd", " <b>", " one",
                                   " two", "."}));
}

TEST(TracePage, ACharacterIsNotSharedAcrossTheEndOfThePrompt) {
  Trace trace = SmallTrace();
  trace.tokens[7] = "\xc3";
  trace.tokens[8] = "\xa9";
  const nlohmann::json texts = Data(trace)["texts"];
  EXPECT_EQ(texts[7], "\xef\xbf\xbd");
  EXPECT_EQ(texts[8], "\xef\xbf\xbd");
}

TEST(TracePage, ThePackedPromptIsGivenAsTokens) {
  TraceRecorder recorder;
  recorder.BeginPrefill(1, 10, {0, 1, 5, 9});
  recorder.Layer({.kept = Span(0, 4), .ffn = {3}});
  recorder.EndPrefill({}, 0);
  Trace trace = recorder.Take();
  trace.tokens.assign(10, "x");
  EXPECT_EQ(Data(trace)["entered"], "0-1,5,9");
}

// No text of a trace may end the element that holds it, open a comment in it, or be markup anywhere on the
// page.
TEST(TracePage, NoTextBreaksOut) {
  const std::string plain = TracePage(SmallTrace());
  const std::string hostile[] = {"</script>",
                                 "</SCRIPT >",
                                 "<script>alert(1)</script>",
                                 "<img src=x onerror=alert(1)>",
                                 "<!--",
                                 "<!--<script>",
                                 "-->",
                                 "]]>",
                                 "\"}]}",
                                 "\\",
                                 "\\u003c/script>",
                                 "&lt;/script&gt;",
                                 "<!--coppice:data-->",
                                 "<!--coppice:script-->",
                                 "\xe2\x80\xa8",
                                 std::string("\0", 1),
                                 "\x1b[31m",
                                 "\xff</script>",
                                 "`${alert(1)}`"};
  for (const std::string& text : hostile) {
    Trace trace = SmallTrace();
    trace.model = trace.spec = trace.backend = text;
    trace.tokens[0] = trace.tokens[10] = text;
    const std::string page = TracePage(trace);
    EXPECT_EQ(Count(page, "<script"), Count(plain, "<script")) << text;
    EXPECT_EQ(Count(page, "</script"), Count(plain, "</script")) << text;
    EXPECT_EQ(Count(page, "<"), Count(plain, "<")) << text;
    EXPECT_THAT(DataText(page), Not(HasSubstr("<"))) << text;
    const nlohmann::json data = nlohmann::json::parse(DataText(page));
    if (text[0] != '\xff') {
      EXPECT_EQ(data["texts"][0], text);
      EXPECT_EQ(data["texts"][10], text);
      EXPECT_EQ(data["prune"], text);
    }
  }
}

TEST(TracePage, FetchesNothingAndWritesNoMarkupFromText) {
  const std::string page = TracePage(SmallTrace());
  for (const char* part :
       {" src=", "href=", "url(", "@import", "fetch(", "XMLHttpRequest", "WebSocket", "innerHTML",
        "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "import("}) {
    EXPECT_THAT(page, Not(HasSubstr(part)));
  }
  EXPECT_EQ(Count(page, "://"), 1) << "the namespace of SVG, which is a name";
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
}

TEST(TracePage, HasEveryPartOfTheView) {
  const std::string page = TracePage(SmallTrace());
  for (const char* id : {"facts", "tiles", "map", "layer", "step", "text", "text-legend", "token-info",
                         "kept", "bytes", "density", "heads", "events"}) {
    EXPECT_EQ(Count(page, std::string("id=\"") + id + "\""), 1) << id;
  }
  EXPECT_THAT(page, HasSubstr("light-dark("));
  EXPECT_THAT(page, HasSubstr("name=\"viewport\""));
  EXPECT_THAT(page, Not(HasSubstr("<!--coppice:")));
}

// The modules of web/ are one script here.
TEST(TracePage, ScriptsAreJoined) {
  const std::string page = TracePage(SmallTrace());
  EXPECT_THAT(page, HasSubstr("\nclass TokenText {"));
  EXPECT_THAT(page, Not(HasSubstr("\nimport ")));
  EXPECT_THAT(page, Not(HasSubstr("\nexport ")));
  EXPECT_THAT(page, Not(HasSubstr("from '.")));
}

TEST(TracePage, EqualTracesGiveEqualPages) { EXPECT_EQ(TracePage(SmallTrace()), TracePage(SmallTrace())); }

// The texts once, the sets of positions as runs: layers that hold the same tokens cost next to nothing.
TEST(TracePage, GrowsWithTheTextAndNotWithTokensTimesLayers) {
  constexpr int kTokens = 32768;
  TraceRecorder recorder;
  recorder.BeginPrefill(80, kTokens);
  std::vector<int32_t> kept = Span(0, kTokens);
  for (int l = 0; l < 80; ++l) {
    if (l == 40) std::erase_if(kept, [](int32_t p) { return p % 2 == 1; });
    recorder.Layer({.kept = kept, .ffn = kept});
  }
  recorder.EndPrefill({}, 0);
  Trace trace = recorder.Take();
  trace.tokens.assign(kTokens, " word");
  const size_t fixed = TracePage(SmallTrace()).size();
  const size_t texts = kTokens * std::string_view("\" word\",").size();
  const size_t list = kTokens / 2 * std::string_view("12345,").size();
  EXPECT_LT(TracePage(trace).size(), fixed + texts + list + 80 * 100);
}

}  // namespace
}  // namespace coppice
