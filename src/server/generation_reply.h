// The reply to a generation request in OpenAI's form: the whole answer, or a stream of chunks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/json.h"
#include "server/depth_report.h"
#include "server/http/http.h"
#include "server/job.h"
#include "server/log_prob_list.h"
#include "server/parameters.h"
#include "server/scheduler.h"

namespace coppice {

// A tokenized prompt.
struct EncodedPrompt {
  std::vector<int32_t> tokens;
  std::vector<std::string> pieces;  // the text by token, for echo; joined they are `text`
  std::string text;
  std::vector<PositionSpan> protected_spans;
  std::vector<PositionSpan> question;  // as Request has it
};

struct ReplyOptions {
  Route route = kCompletions;
  std::string id;
  std::string model;
  int64_t created = 0;
  Parameters parameters;
  std::shared_ptr<void> admission = {};                // released when the reply ends
  std::function<void(int64_t tokens)> on_tokens = {};  // generated; may be empty
};

// Collects the events of one request's jobs. Thread-safe.
class GenerationReply : public std::enable_shared_from_this<GenerationReply> {
 public:
  // `prompts` has one for each choice. `exchange` takes the reply; `tokenizer` and `metrics` must outlive
  // this object.
  GenerationReply(ReplyOptions options, std::vector<std::shared_ptr<const EncodedPrompt>> prompts,
                  const Tokenizer& tokenizer, Metrics& metrics, std::shared_ptr<Exchange> exchange);

  // `callback` is called when a job fails; it cancels the request's other jobs.
  void OnFailure(std::function<void()> callback) { on_failure_ = std::move(callback); }
  // The listener of choice `index`.
  std::shared_ptr<JobEvents> Events(int index);
  // The recorder for that choice's job; null if the request does not ask for depths. Lives as long as the
  // listener.
  TraceRecorder* Recorder(int index);

  void OnPrefix(int index, int64_t tokens);
  void OnProgress(int index, int64_t processed, int64_t total, double ms);
  void OnLogProbs(int index, const TokenLogProbs& token);
  void OnText(int index, const std::string& text);
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
    std::string text = {};
    std::string finish_reason = {};
    OwnedJson<nlohmann::ordered_json> prune = {};
    bool is_first = false;  // the first choice of its prompt
    int64_t cached = 0;     // prompt tokens reused from the document cache
    std::unique_ptr<DepthReport> depth = nullptr;
    bool pieces_told = false;
    bool begun = false;  // the stream has its first chunk
    bool done = false;
  };

  bool is_chat() const { return options_.route == kChat; }
  void BeginChoice(int index);
  void AddDepth(Choice& choice, nlohmann::ordered_json& chunk);
  void EchoLogProb(Choice& choice, const TokenLogProbs* known);
  std::string TakeLogProbs(Choice& choice);  // as JSON
  nlohmann::ordered_json Head(bool chunk) const;
  void AddChoice(int index, std::string& reply);
  nlohmann::ordered_json Usage() const;
  nlohmann::ordered_json Timings() const;
  void Account(nlohmann::ordered_json& reply) const;
  void SendChunk(int index, const nlohmann::ordered_json& delta, const std::string& text,
                 const std::string& finish_reason, const nlohmann::ordered_json& more = {});
  void EndRequest();
  void FinishStream();
  void FinishWhole();

  ReplyOptions options_;
  const Tokenizer& tokenizer_;
  Metrics& metrics_;
  const std::shared_ptr<Exchange> exchange_;
  std::function<void()> on_failure_;
  std::mutex mutex_;
  std::vector<Choice> choices_;
  size_t done_ = 0;
  bool failed_ = false;
  int64_t sampled_ = 0;
  int64_t decoded_ = 0;          // without the first token of each answer, which the prefill gave
  int64_t prompt_tokens_ = 0;    // each prompt of the request counted once
  int64_t cached_tokens_ = 0;    // those reused from the document cache
  int64_t computed_prompt_ = 0;  // prompt tokens that the jobs computed
  int64_t computed_cached_ = 0;
  double prompt_ms_ = 0;
  double decode_ms_ = 0;
};

}  // namespace coppice
