// The reply to a generation request in OpenAI's form: the whole answer, or a stream of chunks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "formats/json.h"
#include "server/bare_calls.h"
#include "server/depth_report.h"
#include "server/http/http.h"
#include "server/job.h"
#include "server/log_prob_list.h"
#include "server/parameters.h"
#include "server/scheduler.h"
#include "server/timings.h"
#include "server/tool_calls.h"
#include "server/tool_check.h"

namespace coppice {

// A tokenized prompt.
struct EncodedPrompt {
  std::vector<int32_t> tokens;
  std::vector<std::string> pieces;  // the text by token, for echo; joined they are `text`
  std::string text;
  std::vector<PositionSpan> protected_spans;
  bool apart = false;                  // as Protection has it
  std::vector<PositionSpan> question;  // as Request has it
  std::optional<Thinking> thinking;    // how the answer marks it; of a chat
};

struct ReplyOptions {
  Route route = kCompletions;
  std::string id;
  std::string model;
  std::string build = {};  // of the program
  int64_t created = 0;
  Parameters parameters;
  std::optional<ToolFormat> tools = {};                // the answer may call functions, in this form
  std::shared_ptr<void> admission = {};                // released when the reply ends
  std::function<void(int64_t tokens)> on_tokens = {};  // generated; may be empty
};

// What a message, or a part of it, has of the thinking: under the name that DeepSeek, llama.cpp and SGLang
// give it, and under that of vLLM and OpenRouter. Clients read either, and those that read both take the
// first.
inline nlohmann::ordered_json ThoughtMembers(const std::string& text) {
  return {{"reasoning_content", text}, {"reasoning", text}};
}

// Collects the events of one request's jobs. Thread-safe.
class GenerationReply : public std::enable_shared_from_this<GenerationReply> {
 public:
  // `prompts` has one for each choice. `exchange` takes the reply; `tokenizer` and `metrics` must outlive
  // this object.
  GenerationReply(ReplyOptions options, std::vector<std::shared_ptr<const EncodedPrompt>> prompts,
                  const Tokenizer& tokenizer, Metrics& metrics, std::shared_ptr<Exchange> exchange);

  // `callback` is called when a job fails; it cancels the request's other jobs.
  void OnFailure(std::function<void()> callback) { on_failure_ = std::move(callback); }
  // Whether the job of choice `index` should score its prompt. Of the choices of one prompt, one does so.
  bool ScoresPrompt(int index) const;
  // `callback` is called once, when the job of choice `index` has scored its prompt: the prompt's other jobs
  // may begin.
  void OnScored(int index, std::function<void()> callback);
  // The listener of choice `index`.
  std::shared_ptr<JobEvents> Events(int index);
  // The recorder for that choice's job; null if the request does not ask for depths. Lives as long as the
  // listener.
  TraceRecorder* Recorder(int index);

  void OnPrefix(int index, int64_t tokens);
  void OnHeld();
  void OnProgress(int index, int64_t processed, int64_t total, double ms);
  void OnLogProbs(int index, const TokenLogProbs& token);
  void OnThought(int index, const std::string& text);
  void OnText(int index, int32_t id, const std::string& text);
  void OnDone(int index, const JobResult& result);
  void OnError(const HttpFault& fault);

 private:
  struct Choice {
    std::shared_ptr<const EncodedPrompt> prompt;
    LogProbList log_probs;  // of what was generated
    // Of the prompt, if the request asks for them; the choices of one prompt share the list.
    std::shared_ptr<LogProbList> echo = nullptr;
    bool echo_told = false;
    size_t told = 0;  // the number of prompt log-probabilities so far
    std::function<void()> on_scored = {};
    std::string text = {};                    // generated, if the reply is no stream
    std::string thought = {};                 // the same of the thinking
    std::optional<AnswerParser> parser = {};  // if the answer may call functions
    OwnedJson<nlohmann::ordered_json> calls = nlohmann::ordered_json::array();
    size_t call_bytes = 0;    // of the calls, nearly
    bool skips_call = false;  // the call that is being read is one too many
    bool call_is_cut = false;
    std::string finish_reason = {};
    std::string prune = {};  // the account of pruning, as JSON; empty: none
    // The texts of the prompt's tokens, as JSON, if the whole reply lists them. The choices of one prompt
    // share them.
    std::shared_ptr<const std::string> pieces = nullptr;
    bool is_first = false;  // the first choice of its prompt
    int64_t cached = 0;     // prompt tokens reused from the document cache
    std::unique_ptr<DepthReport> depth = nullptr;
    bool pieces_told = false;
    ReplyFigures figures = {};
    std::optional<ReuseReport> reuse = {};
    bool has_new_line = false;         // of llama.cpp's own form
    std::vector<int32_t> tokens = {};  // if the request wants them: those that were not sent yet
    int64_t generated = 0;
    OwnedJson<nlohmann::ordered_json> ending = {};  // what llama.cpp's form says at the end
    bool begun = false;                             // the stream has its first chunk
    bool done = false;
  };

  bool is_chat() const { return options_.route == kChat; }
  bool is_native() const { return options_.route == kNative; }
  void TellProgress(int index, int64_t processed, int64_t total, double ms);
  void BeginChoice(int index);
  void AddThought(int index, const std::string& text);
  void AddText(int index, const std::string& text);
  void BeginCall(int index, const std::string& name);
  void AddArguments(int index, const std::string& piece);
  void EndCall(int index, bool is_cut);
  void AddParts(int index, const std::vector<AnswerPart>& parts);
  void AddDepth(Choice& choice, nlohmann::ordered_json& chunk);
  void Count();  // one event more; now and then counts the reply's memory, and fails if there is too much
  int64_t HeldBytes() const;
  int64_t WholeBytes() const;
  void Fail(const HttpFault& fault);
  void EchoLogProb(Choice& choice, const TokenLogProbs* known);
  void EndEcho(Choice& choice);
  std::string TakeLogProbs(Choice& choice);  // as JSON
  nlohmann::ordered_json Head(bool chunk) const;
  void AddChoice(int index, std::string& reply);
  nlohmann::ordered_json Usage() const;
  void Account(nlohmann::ordered_json& reply) const;
  void SendChunk(int index, const nlohmann::ordered_json& delta, const std::string& text,
                 const std::string& finish_reason, const nlohmann::ordered_json& more = {});
  // llama.cpp's form.
  std::string NativePart(int index, const std::string& text, bool stop);
  void EndRequest();
  void FinishStream();
  void FinishWhole();
  void MakePieces();

  ReplyOptions options_;
  const Tokenizer& tokenizer_;
  Metrics& metrics_;
  const std::shared_ptr<Exchange> exchange_;
  std::function<void()> on_failure_;
  std::mutex mutex_;
  std::vector<Choice> choices_;
  size_t done_ = 0;
  bool failed_ = false;
  int64_t events_ = 0;         // since the last Count()
  int64_t prompt_tokens_ = 0;  // each prompt of the request counted once
  int64_t cached_tokens_ = 0;  // those reused from the document cache
  ReplyFigures figures_;       // of all jobs
  LogFields result_fields_;    // of the first one
  CallChecks call_checks_;
  OwnedJson<nlohmann::ordered_json> call_errors_ = nlohmann::ordered_json::array();  // as CallChecks has them
};

}  // namespace coppice
