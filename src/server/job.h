// One sequence to be generated: the request, the listener to its events, and the flag that cancels it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/thinking.h"
#include "server/errors.h"
#include "server/histogram.h"
#include "server/reuse_report.h"

namespace coppice {

struct JobResult {
  Answer answer;
  std::string finish_reason;                   // "stop" or "length"
  std::string stop_string;                     // the one that ended the answer; empty: none did
  std::string tail;                            // text that was held back until the end
  std::string thought_tail;                    // the same of the thinking, which comes before
  int64_t sampled = 0;                         // tokens, the one that ended the answer among them
  int64_t thinking = 0;                        // of these, those of the thinking
  std::vector<std::vector<float>> embeddings;  // of Job::texts
  bool cancelled = false;  // Cancelled ended the job: a job that failed has Job::cancelled set, too
  std::optional<ReuseReport> reuse = {};  // of the prompt, if the job has an id
  double queued_ms = 0;                   // from the job's arrival to the start of its computation
  Histogram token_gaps{kTokenGapBounds};  // seconds from a token to the next one
};

// Called in order by the thread that computes; must return quickly.
class JobEvents {
 public:
  virtual ~JobEvents() = default;
  // The number of prompt tokens reused from the document cache; called before any progress.
  virtual void OnPrefix(int64_t tokens) = 0;
  // The answer's first token exists, and the answer is held back until it can be judged (Request::on_held).
  virtual void OnHeld() {}
  // Prefill progress in prompt tokens, by the share of layers done; never falls, and ends at `total`.
  virtual void OnProgress(int64_t processed, int64_t total, double ms) = 0;
  // If the job asks for log-probabilities: of the prompt's tokens from the second on, then of each generated
  // token before its text. If the job tells thinking apart, only of the answer's tokens.
  virtual void OnLogProbs(const TokenLogProbs& token) = 0;
  // Something that the model thinks; comes before the OnText() of the token that completed it.
  virtual void OnThought(const std::string&) {}
  // A generated token, and the text that it completed; may be empty.
  virtual void OnText(int32_t id, const std::string& text) = 0;
  // The last event is one of these two.
  virtual void OnDone(const JobResult& result) = 0;
  virtual void OnError(const HttpFault& fault) = 0;
};

// For a job that nobody waits for.
class NoEvents final : public JobEvents {
 public:
  void OnPrefix(int64_t) override {}
  void OnProgress(int64_t, int64_t, double) override {}
  void OnLogProbs(const TokenLogProbs&) override {}
  void OnText(int32_t, const std::string&) override {}
  void OnDone(const JobResult&) override {}
  void OnError(const HttpFault&) override {}
};

struct NextTurn;    // next_turn.h
struct TurnAnswer;  // the same

struct Job {
  std::string id = {};  // the request's, as its client sees it; empty: nobody waits for the job
  Request request;      // without callbacks
  // If there are any, the job computes their embeddings and generates nothing; request.tokens then holds all
  // of their tokens.
  std::vector<std::vector<int32_t>> texts;
  Pooling pooling = Pooling::kMean;
  int64_t slot = -1;  // the slot that computes the job if it is free; another one does otherwise
  bool log_probs = false;
  // Stays in the queue until Scheduler::Release: another job of its request scores their prompt first. The
  // scheduler's own once it was submitted.
  bool is_later = false;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  std::vector<int32_t> written_tokens;     // control tokens whose written form belongs to the text
  std::optional<Thinking> thinking;        // how the answer marks it
  bool splits_thinking = true;             // tell it from the answer, to which alone stop strings then apply
  std::optional<int64_t> thinking_budget;  // tokens
  std::optional<Thinking> split() const { return splits_thinking ? thinking : std::nullopt; }
  std::chrono::steady_clock::time_point arrived = {};
  std::shared_ptr<JobEvents> events;
  // What the server may read after the answer; null: nothing.
  std::shared_ptr<const NextTurn> next_turn;
  // Instead of an answer: reads what follows this turn. `request` is that turn's; a later prompt that begins
  // as it cancels this job.
  std::shared_ptr<const TurnAnswer> beginning;
  std::atomic<bool> cancelled{false};
  std::atomic<bool> server_stops{false};  // the cause of `cancelled`

  // State for GET /slots.
  std::atomic<int64_t> cached{0};
  std::atomic<int64_t> processed{0};
  std::atomic<int64_t> decoded{0};
};

// What a running job calls to share the engine with others.
struct JobTurns {
  std::function<void()> pause;                   // Request::pause
  std::function<void(DecodeStep& step)> decode;  // Request::decode
  std::function<bool()> others;                  // Request::others
  std::function<void()> rest = {};               // Request::rest
};

// Computes one job and reports to its events. Does not throw. Fills `result` and returns true if the job ran
// to its end. The engine must have a tokenizer. `history`: the record of earlier prompts that the job's
// prompt is compared with and added to; may be null.
bool RunJob(Engine& engine, Job& job, const JobTurns& turns, JobResult& result,
            PromptHistory* history = nullptr);

}  // namespace coppice
