// One sequence to be generated: what is wanted, who is told, and how it is stopped.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/errors.h"

namespace coppice {

struct JobResult {
  Answer answer;
  std::string finish_reason;  // "stop" or "length"
  std::string tail;           // text that was held back until the end
  int64_t sampled = 0;        // tokens, the one that ended the answer among them
};

// Called from the thread that computes, in order; must return quickly.
class JobEvents {
 public:
  virtual ~JobEvents() = default;
  // Of how many of the prompt's tokens the document cache knew the beginning; before any progress.
  virtual void OnPrefix(int64_t tokens) = 0;
  // Prompt tokens that are done, by the share of the layers; never falling, `total` at the end.
  virtual void OnProgress(int64_t processed, int64_t total, double ms) = 0;
  // Where the job asks for them: of the prompt's tokens from the second on, then of every token before its text.
  virtual void OnLogProbs(const TokenLogProbs& token) = 0;
  // What a token made certain; may be empty.
  virtual void OnText(const std::string& text) = 0;
  // One of these two is last.
  virtual void OnDone(const JobResult& result) = 0;
  virtual void OnError(const HttpFault& fault) = 0;
};

struct Job {
  Request request;  // without callbacks
  bool log_probs = false;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  std::chrono::steady_clock::time_point arrived = {};
  std::shared_ptr<JobEvents> events;
  std::atomic<bool> cancelled{false};

  // For whoever watches.
  std::atomic<int64_t> cached{0};
  std::atomic<int64_t> processed{0};
  std::atomic<int64_t> decoded{0};
};

// Computes one job and tells its events everything; `pause` as in Request. Throws nothing. `result` is filled where
// it came to an end.
bool RunJob(Engine& engine, Job& job, const std::function<void()>& pause, JobResult& result);

}  // namespace coppice
