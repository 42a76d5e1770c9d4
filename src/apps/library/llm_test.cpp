// The library as a program that links it sees it: by its public headers alone.
#include <coppice/c.h>
#include <coppice/llm.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using coppice::Llm;
using coppice::LlmAnswer;
using coppice::LlmError;
using coppice::LlmRequest;

constexpr const char* kModel = COPPICE_SOURCE_DIR "/models/coppice-mini-f16.gguf";

// What `function` throws.
template <typename Function>
LlmError ErrorOf(Function&& function) {
  try {
    function();
  } catch (const LlmError& error) {
    return error;
  }
  return {LlmError::Kind::kFailed, "nothing was thrown"};
}

Llm Mini(coppice::LlmOptions options = {}) {
  options.threads = 1;
  return Llm(kModel, options);
}

LlmRequest Greedy(int64_t tokens) { return {.max_tokens = tokens, .temperature = 0}; }

std::string Story(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i)
    text += "The lamp of house " + std::to_string(i * 37) + " was lit at dusk.\n";
  return text;
}

TEST(Library, AnAnswerHasItsTextTokensAndFigures) {
  Llm llm = Mini();
  const LlmAnswer answer = llm.Generate("Once upon a time", Greedy(8));
  EXPECT_EQ(answer.tokens.size(), 8u);
  std::vector<int32_t> all = llm.Tokenize("Once upon a time");
  all.insert(all.end(), answer.tokens.begin(), answer.tokens.end());
  EXPECT_TRUE(llm.Detokenize(all).ends_with(answer.text));
  EXPECT_EQ(answer.finish_reason, "length");
  EXPECT_EQ(answer.prompt_tokens, static_cast<int64_t>(llm.Tokenize("Once upon a time").size()));
  EXPECT_GT(answer.ttft_ms, 0);
  EXPECT_EQ(answer.prune_spec, "");
  EXPECT_EQ(llm.Generate(llm.Tokenize("Once upon a time"), Greedy(8)).text, answer.text);
}

TEST(Library, AMethodPrunesAndProtectedTokensStay) {
  Llm llm = Mini({.prune = "lazyllm:min=0", .cache_mib = 0});
  const std::string text = Story(12);
  const LlmAnswer pruned = llm.Generate(text, Greedy(2));
  EXPECT_TRUE(pruned.prune_active);
  EXPECT_LT(pruned.flops, pruned.flops_dense);
  LlmRequest all = Greedy(2);
  all.protect = {{0, pruned.prompt_tokens}};
  const LlmAnswer kept = llm.Generate(text, all);
  LlmRequest dense = Greedy(2);
  dense.prune = "none";
  EXPECT_EQ(kept.text, llm.Generate(text, dense).text);
  EXPECT_EQ(kept.flops, kept.flops_dense);
}

TEST(Library, ADocumentIsReadOnce) {
  Llm llm = Mini();
  const coppice::LlmDocument document = llm.Read(Story(30));
  const LlmAnswer answer = document.Ask("Which house?", Greedy(4));
  EXPECT_GT(answer.cached_tokens, answer.prompt_tokens / 2);
  LlmRequest fresh = Greedy(4);
  fresh.more = R"({"cache_prompt": false})";
  EXPECT_EQ(llm.Ask(document.text(), "Which house?", fresh).text, answer.text);
}

TEST(Library, CallbacksSeeTheAnswerAsItComesAndCanEndIt) {
  Llm llm = Mini();
  std::string streamed;
  int64_t processed = 0;
  LlmRequest request = Greedy(6);
  request.on_text = [&](std::string_view text) {
    streamed += text;
    return true;
  };
  request.on_progress = [&](int64_t done, int64_t total) {
    EXPECT_LE(done, total);
    processed = std::max(processed, done);
    return true;
  };
  const LlmAnswer answer = llm.Generate(Story(40), request);
  EXPECT_EQ(streamed, answer.text);
  EXPECT_EQ(processed, answer.prompt_tokens);
  request.on_text = [](std::string_view) { return false; };
  EXPECT_EQ(ErrorOf([&] { llm.Generate("Once", request); }).kind(), LlmError::Kind::kCancelled);
  request.on_text = [](std::string_view) -> bool { throw std::logic_error("mine"); };
  EXPECT_THROW(llm.Generate("Once", request), std::logic_error);
  EXPECT_EQ(llm.Generate("Once", Greedy(3)).tokens.size(), 3u);
}

TEST(Library, ErrorsNameWhatIsWrong) {
  EXPECT_NE(std::string(ErrorOf([] { Llm("/no/such.gguf"); }).what()).find("/no/such.gguf"),
            std::string::npos);
  EXPECT_NE(std::string(ErrorOf([] { Llm(kModel, {.more = {"--no-such"}}); }).what()).find("--no-such"),
            std::string::npos);
  Llm llm = Mini({.context = 64});
  LlmRequest request = Greedy(2);
  request.prune = "nonsense";
  const LlmError method = ErrorOf([&] { llm.Generate("Once", request); });
  EXPECT_EQ(method.kind(), LlmError::Kind::kInvalid);
  EXPECT_EQ(method.field(), "prune");
  EXPECT_EQ(ErrorOf([&] { llm.Generate(Story(20), Greedy(2)); }).kind(), LlmError::Kind::kTooLong);
  request = Greedy(2);
  request.more = "[1]";
  EXPECT_EQ(ErrorOf([&] { llm.Generate("Once", request); }).field(), "more");
  EXPECT_EQ(ErrorOf([&] { llm.Call("GET", "/no/such/route"); }).kind(), LlmError::Kind::kInvalid);
}

TEST(Library, ScoresAddUpAndVectorsHaveLengthOne) {
  Llm llm = Mini();
  const std::vector<int32_t> tokens = llm.Tokenize("Once upon a time there was");
  const std::vector<double> scores = llm.Score(tokens);
  ASSERT_EQ(scores.size(), tokens.size() - 1);
  for (const double score : scores) EXPECT_LT(score, 0);
  double square = 0;
  for (const float x : llm.Embed("Once upon")) square += x * x;
  EXPECT_NEAR(square, 1, 1e-5);
}

TEST(Library, ThreadsShareOneModelAndGetTheAnswersOfOne) {
  Llm llm = Mini();
  std::vector<std::string> alone;
  for (int i = 0; i < 4; ++i) alone.push_back(llm.Generate(Story(5 + i), Greedy(6)).text);
  std::vector<std::string> together(alone.size());
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < alone.size(); ++i)
    threads.emplace_back(
        [&, i] { together[i] = llm.Generate(Story(5 + static_cast<int>(i)), Greedy(6)).text; });
  threads.clear();
  EXPECT_EQ(together, alone);
}

TEST(Library, AForkedProcessIsRefusedAndEnds) {
  Llm llm = Mini();
  const pid_t child = fork();
  if (child == 0) {
    const LlmError error = ErrorOf([&] { llm.Generate("Once", Greedy(2)); });
    { const Llm moved = std::move(llm); }  // its destructor must not wait for the parent's threads
    _exit(std::string(error.what()).find("forked") != std::string::npos ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(llm.Generate("Once", Greedy(2)).tokens.size(), 2u);
}

TEST(CLibrary, AReplyComesWithItsStatusAndListeningTwiceIsOncePort) {
  const char* options[] = {"-m", kModel, "-t", "1"};
  char* error = nullptr;
  coppice_llm* llm = coppice_open(options, 4, &error);
  ASSERT_NE(llm, nullptr) << error;
  std::string reply;
  const auto receive = [](void* user, const char* bytes, size_t size) {
    static_cast<std::string*>(user)->append(bytes, size);
    return 0;
  };
  EXPECT_EQ(coppice_call(llm, "GET", "/health", "", 0, receive, &reply), 200);
  EXPECT_EQ(reply, R"({"status":"ok"})");
  reply.clear();
  EXPECT_EQ(coppice_call(llm, "POST", "/completion", "{", 1, receive, &reply), 400);
  EXPECT_TRUE(reply.starts_with(R"({"error":)")) << reply;
  const int port = coppice_listen(llm, 0, &error);
  EXPECT_GT(port, 0) << error;
  EXPECT_EQ(coppice_listen(llm, 0, &error), port);
  coppice_close(llm);
  coppice_close(nullptr);
  EXPECT_EQ(coppice_open(options, 1, &error), nullptr);
  EXPECT_NE(std::string(error).find("-m"), std::string::npos) << error;
  coppice_free(error);
}

}  // namespace
