#include "eval/judge/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/field_error.h"
#include "eval/journal.h"
#include "eval/judge/judge_test_server.h"
#include "eval/report/page.h"
#include "eval/summary.h"
#include "test_files.h"

namespace coppice::judge_test {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string Answer(const std::string& content) {
  return FakeEndpoint::Response(200, json{{"choices", {{{"message", {{"content", content}}}}}}}.dump());
}

TEST(ChatEndpoint, TakesAddressesApart) {
  const auto parts = [](const char* url) {
    const EndpointUrl u = ParseEndpointUrl(url);
    return u.host + " " + std::to_string(u.port) + " " + u.path + " " + u.Host();
  };
  EXPECT_EQ(parts("http://localhost:8080/v1"), "localhost 8080 /v1 localhost:8080");
  EXPECT_EQ(parts("http://judge"), "judge 80  judge");
  EXPECT_EQ(parts("http://[::1]:81/a/b/"), "::1 81 /a/b [::1]:81");
  EXPECT_EQ(parts("http://[::1]/v1"), "::1 80 /v1 [::1]");
  for (const char* url : {"",
                          "judge",
                          "ftp://x",
                          "http://",
                          "http://:80",
                          "http://x:",
                          "http://x:port",
                          "http://x:123456",
                          "http://x:65536",
                          "http://x:0",
                          "http://x:+1",
                          "http://x:-1",
                          "http://x:1:2",
                          "http://::1:80",
                          "http://[::1",
                          "http://[::1]x",
                          "http://[::1]80",
                          "http://[]",
                          "http://[x]",
                          "http://x]",
                          "http://x y",
                          "http://x/a b",
                          "http://u@x",
                          "http://x/?a",
                          "http://x\\y"})
    EXPECT_THROW(ParseEndpointUrl(url), FieldError) << url;
  EXPECT_THAT(ErrorOf([] { ParseEndpointUrl("https://x/v1"); }), HasSubstr("no TLS"));
}

TEST(ChatEndpoint, NoMessageQuotesASecret) {
  for (const char* url : {"http://user:pass@host/v1", "https://user:pass@host/v1", "user:pass@host",
                          "http://user:pass/@?@host", "http://host/v1?key=pass", "https://host?key=pass"}) {
    const std::string message = ErrorOf([&] { ParseEndpointUrl(url); });
    EXPECT_THAT(message, HasSubstr("host")) << url;
    EXPECT_THAT(message, HasSubstr("***"));
    EXPECT_THAT(message, Not(HasSubstr("pass")));
  }
  // An endpoint that quotes the key that it refuses.
  FakeEndpoint server([](const std::string&, const std::string&) {
    return FakeEndpoint::Response(401, "wrong key: s3cret (s3cret)");
  });
  EXPECT_THAT(
      ErrorOf([&] { AskChat({.url = server.url(), .model = "m", .key = "s3cret"}, "s", "q", 1, nullptr); }),
      HasSubstr("wrong key: *** (***)"));
}

TEST(ChatEndpoint, AKeyCannotBeginAHeader) {
  FakeEndpoint server([](const std::string&, const std::string&) { return Answer("fine"); });
  for (const std::string key : {"a\r\nX: y", "a b", "a\n", "\x7F", "\xC3\xA9"}) {
    const ChatEndpoint endpoint{.url = server.url(), .model = "m", .key = key};
    EXPECT_THAT(ErrorOf([&] { Check(endpoint); }), HasSubstr("judge_key_env"));
    EXPECT_THROW(AskChat(endpoint, "s", "q", 1, nullptr), FieldError);
  }
  EXPECT_EQ(server.requests(), 0);
}

TEST(ChatEndpoint, SendsAChatAndReturnsItsAnswer) {
  std::string head, body;
  FakeEndpoint server([&](const std::string& h, const std::string& b) {
    head = h;
    body = b;
    return Answer("fine [[A]]");
  });
  EXPECT_EQ(AskChat({.url = server.url(), .model = "m", .key = "secret"}, "sys", "que\xFF", 7, nullptr),
            "fine [[A]]");
  EXPECT_THAT(head, HasSubstr("POST /v1/chat/completions HTTP/1.1"));
  EXPECT_THAT(head, HasSubstr("Authorization: Bearer secret"));
  EXPECT_THAT(head, HasSubstr("Host: " + ParseEndpointUrl(server.url()).Host() + "\r\n"));
  const json sent = json::parse(body);
  EXPECT_EQ(sent["model"], "m");
  EXPECT_EQ(sent["temperature"], 0);
  EXPECT_EQ(sent["max_tokens"], 7);
  EXPECT_EQ(sent["messages"][0], (json{{"role", "system"}, {"content", "sys"}}));
  EXPECT_EQ(sent["messages"][1]["role"], "user");
}

TEST(ChatEndpoint, TriesAgainOnlyWhereThatCanHelp) {
  int calls = 0;
  FakeEndpoint busy([&](const std::string&, const std::string&) {
    return ++calls < 3 ? FakeEndpoint::Response(calls == 1 ? 429 : 503, "busy") : Answer("ok");
  });
  ChatEndpoint endpoint{.url = busy.url(), .model = "m", .key = "secret"};
  endpoint.pause = std::chrono::milliseconds(1);
  EXPECT_EQ(AskChat(endpoint, "s", "q", 1, nullptr), "ok");
  EXPECT_EQ(calls, 3);
  FakeEndpoint wrong([](const std::string&, const std::string&) {
    return FakeEndpoint::Response(401, "{\"error\":\n\"no key\"}");
  });
  endpoint.url = wrong.url();
  const std::string message = ErrorOf([&] { AskChat(endpoint, "s", "q", 1, nullptr); });
  EXPECT_THAT(message, HasSubstr(wrong.url() + ": status 401: "));
  EXPECT_THAT(message, Not(HasSubstr("\n")));
  EXPECT_THAT(message, Not(HasSubstr("secret")));
  EXPECT_EQ(wrong.requests(), 1);
}

TEST(ChatEndpoint, BadAnswersAndSilenceAreErrors) {
  std::string response;
  FakeEndpoint server([&](const std::string&, const std::string&) { return response; });
  ChatEndpoint endpoint{
      .url = server.url(), .model = "m", .key = {}, .timeout = std::chrono::milliseconds(2000), .tries = 1};
  for (const std::string& bad :
       {FakeEndpoint::Response(200, "{}"), FakeEndpoint::Response(200, "[1"), FakeEndpoint::Response(200, ""),
        FakeEndpoint::Response(200, R"({"choices": [{"message": {"content": null}}]})"),
        FakeEndpoint::Response(200, R"({"choices": 5})"), std::string("no http\r\n\r\n"), std::string(),
        FakeEndpoint::Response(200, std::string(100'000, '['))}) {
    response = bad;
    EXPECT_THAT(ErrorOf([&] { AskChat(endpoint, "s", "q", 1, nullptr); }),
                HasSubstr("[judge] " + server.url()));
  }
  endpoint.url = "http://127.0.0.1:1";  // nothing listens
  EXPECT_THAT(ErrorOf([&] { AskChat(endpoint, "s", "q", 1, nullptr); }), HasSubstr("127.0.0.1:1"));
}

// It accepts the connection, reads the question and says nothing.
TEST(ChatEndpoint, ASilentServerIsAnErrorAfterTheTimeout) {
  std::atomic<bool> done = false;
  FakeEndpoint silent([&](const std::string&, const std::string&) {
    while (!done) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return std::string();
  });
  const ChatEndpoint endpoint{
      .url = silent.url(), .model = "m", .key = {}, .timeout = std::chrono::milliseconds(100), .tries = 1};
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(ErrorOf([&] { AskChat(endpoint, "s", "q", 1, nullptr); }),
              HasSubstr("[judge] " + silent.url() + ": "));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  done = true;
}

TEST(ChatEndpoint, CanBeCancelledWhileItWaits) {
  std::atomic<bool> cancelled = false;
  FakeEndpoint slow([&](const std::string&, const std::string&) {
    cancelled = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return Answer("late");
  });
  EXPECT_THROW(AskChat({.url = slow.url(), .model = "m"}, "s", "q", 1, &cancelled), Cancelled);
}

TEST(Judge, ReadsTheLastVerdict) {
  EXPECT_EQ(VerdictOf("[[A]]"), JudgeVerdict::kFirst);
  EXPECT_EQ(VerdictOf("not [[A]] but [[B]]."), JudgeVerdict::kSecond);
  EXPECT_EQ(VerdictOf("so [[C]]"), JudgeVerdict::kTie);
  EXPECT_EQ(VerdictOf("[[A]], as in the [[note]] and [[D]]"), JudgeVerdict::kFirst) << "other brackets";
  EXPECT_EQ(VerdictOf("[[B]] or [[C]] or [[A]]"), JudgeVerdict::kFirst);
  for (const char* text : {"", "A", "[[D]]", "[[", "[[A", "[[A]", "[A]"})
    EXPECT_EQ(VerdictOf(text), JudgeVerdict::kNone);
}

SampleResult Arm(const std::string& prune, const std::string& text) {
  SampleResult arm;
  arm.prune = prune;
  arm.score = 0.5;
  arm.text = text;
  return arm;
}

class JudgeRunTest : public ::testing::Test {
 protected:
  JudgeRunTest() {
    Journal journal(folder_.path() + "/samples.jsonl", {{"model", "m"}});
    for (const char* id : {"0", "1", "2"}) {
      SampleRecord record{.task = "leval_open/x", .length = 0, .id = id, .metric = "qa_f1", .prompt = {}};
      record.references = {"reference " + std::string(id)};
      record.question = "question " + std::string(id);
      record.arms = {Arm("none", "dense " + std::string(id)), Arm("ftp", "pruned " + std::string(id))};
      records_.push_back(record);
      journal.Append(record);
    }
  }
  std::vector<ResultRow> Judge(const JudgeOptions& options) {
    std::vector<ResultRow> rows = Summarize(records_);
    JudgeRun(folder_.path(), options, nullptr, {}, rows);
    return rows;
  }
  TempFolder folder_;
  std::vector<SampleRecord> records_;
};

// The judge prefers the pruned answer to question 0, has no opinion on 1, and always says A on 2.
std::string Opinion(const std::string& body) {
  const std::string asked = json::parse(body)["messages"][1]["content"];
  if (asked.find("question 1") != std::string::npos) return "[[C]]";
  if (asked.find("question 2") != std::string::npos) return "[[A]]";
  return asked.find("Answer A:\npruned") != std::string::npos ? "[[A]]" : "[[B]]";
}

TEST_F(JudgeRunTest, AsksInBothOrdersAndKeepsTheVerdicts) {
  FakeEndpoint server([](const std::string&, const std::string& body) { return Answer(Opinion(body)); });
  const JudgeOptions options{.endpoint = {.url = server.url(), .model = "judge"}};
  std::vector<ResultRow> rows = Judge(options);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_TRUE(rows[0].verdicts.empty()) << "dense is not judged against itself";
  EXPECT_THAT(rows[1].verdicts, ElementsAre(3, 2, 1, 0));  // 0 twice, 1 tied twice, 2 once each way
  EXPECT_NEAR(rows[1].win_rate, 100.0 * 4 / 6, 1e-9);
  EXPECT_EQ(server.requests(), 6);
  // What was asked is not asked again, even after a line that was cut off.
  std::ofstream(folder_.path() + "/judge.jsonl", std::ios::app) << "{\"comparison\": \"12";
  rows = Judge(options);
  EXPECT_THAT(rows[1].verdicts, ElementsAre(3, 2, 1, 0));
  EXPECT_EQ(server.requests(), 6);
  JudgeOptions other = options;
  other.endpoint.model = "another judge";
  Judge(other);
  Judge(other);
  EXPECT_EQ(server.requests(), 12);
}

TEST_F(JudgeRunTest, ResultsKeepTheVerdicts) {
  const auto verdicts = [&] { return ReadResults(folder_.path() + "/results.json")[1].verdicts; };
  std::atomic<bool> cancelled = false;
  FakeEndpoint server([&](const std::string&, const std::string& body) {
    if (body.find("question 2") != std::string::npos) cancelled = true;
    return Answer(Opinion(body));
  });
  JudgeOptions options{.endpoint = {.url = server.url(), .model = "judge"}};
  std::vector<ResultRow> rows = Summarize(records_);
  EXPECT_THROW(JudgeRun(folder_.path(), options, &cancelled, {}, rows), Cancelled);
  // The two questions before it, and maybe an answer that came before the interruption was seen.
  ASSERT_EQ(verdicts().size(), 4u);
  EXPECT_THAT(verdicts(), testing::AnyOf(ElementsAre(2, 2, 0, 0), ElementsAre(3, 2, 0, 0)));
  Judge(options);
  EXPECT_THAT(verdicts(), ElementsAre(3, 2, 1, 0));
  WriteReport(folder_.path());  // sums up the samples anew
  EXPECT_THAT(verdicts(), ElementsAre(3, 2, 1, 0));
  EXPECT_NEAR(ReadResults(folder_.path() + "/results.json")[1].win_rate, 100.0 * 4 / 6, 1e-9);
}

TEST_F(JudgeRunTest, ComparesWithTheAnswersOfAFile) {
  FakeEndpoint server([](const std::string&, const std::string& body) {
    EXPECT_THAT(body, HasSubstr("turbo"));
    EXPECT_THAT(body, HasSubstr("question 0"));
    return Answer("no idea");
  });
  const std::string file =
      folder_.Write("pred.jsonl", R"({"query": "question 0", "gt": "reference 0", "turbo_pred": "turbo"})"
                                  "\n"
                                  R"({"query": "question 9", "gt": "reference 0", "turbo_pred": "turbo"})");
  const std::vector<ResultRow> rows =
      Judge({.endpoint = {.url = server.url(), .model = "judge"}, .against = file});
  EXPECT_THAT(rows[0].verdicts, ElementsAre(0, 0, 0, 2)) << "dense is judged, too";
  EXPECT_TRUE(std::isnan(rows[0].win_rate)) << "no verdict is no tie";
  EXPECT_EQ(server.requests(), 4);
}

TEST_F(JudgeRunTest, OptionsAreCheckedBeforeAnythingRuns) {
  const std::string url = "http://127.0.0.1:9/v1";
  EXPECT_NO_THROW(Check(JudgeOptions{}));
  EXPECT_THAT(ErrorOf([&] { Check(JudgeOptions{.endpoint = {.url = url}}); }), HasSubstr("judge_model"));
  EXPECT_THAT(
      ErrorOf([&] { Check(JudgeOptions{.endpoint = {.url = url, .model = "m"}, .against = "/none"}); }),
      HasSubstr("/none"));
  const std::string file = folder_.Write("wrong.jsonl", R"({"query": "q", "gt": "r"})");
  EXPECT_THAT(ErrorOf([&] { Check(JudgeOptions{.endpoint = {.url = url, .model = "m"}, .against = file}); }),
              HasSubstr("ends with _pred"));
}

}  // namespace
}  // namespace coppice::judge_test
