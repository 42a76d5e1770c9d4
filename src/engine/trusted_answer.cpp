// Request::least_confidence: replaces a pruned answer by a dense one if the model is not sure of it.
//
// answer_judge.h has the signal. On real weights it separates right pruned answers from wrong ones
// (docs/quality.md); the share of dropped attention does not. The caller gets no token before the decision.
// The dense run reuses the states below the method's first choice, so it computes only the layers above.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "engine/answer_judge.h"
#include "engine/engine.h"

namespace coppice {

namespace {

using Clock = std::chrono::steady_clock;

// Holds back a run's callbacks until the decision.
class HeldAnswer {
 public:
  HeldAnswer(const Request& request, const Tokenizer* tokenizer)
      : request_(request), tokenizer_(tokenizer), judge_(request.least_confidence), start_(Clock::now()) {}

  // The request with callbacks that are held back.
  Request Held() {
    Request held = request_;
    held.least_confidence = 0;
    held.on_choice = [this](const ChosenRun& chosen) {
      if (!chosen.active) Decide(true);  // the answer is dense
      if (request_.on_choice) request_.on_choice(chosen);
    };
    held.on_logits = [this](std::span<const float> logits) {
      if (!decided_) log_probability_ = LogSoftmax(logits).Highest();
      if (!request_.on_logits) return;
      Tell([this, copy = std::vector<float>(logits.begin(), logits.end())] {
        request_.on_logits(copy);
        return true;
      });
    };
    if (request_.on_log_probs) {
      held.on_log_probs = [this](const TokenLogProbs& token) {
        Tell([this, token] {
          request_.on_log_probs(token);
          return true;
        });
      };
    }
    held.on_token = [this](int32_t id) {
      if (!Tell([this, id] { return Show(id); })) return false;
      if (decided_) return true;
      if (!std::exchange(told_, true) && request_.on_held) request_.on_held();
      const std::string text = tokenizer_ != nullptr ? tokenizer_->Piece(id) : std::string();
      const AnswerJudge::Verdict verdict = judge_.Add(text, log_probability_);
      return verdict == AnswerJudge::Verdict::kOpen || Decide(verdict == AnswerJudge::Verdict::kBelieved);
    };
    return held;
  }

  // The answer has ended.
  void End() { Decide(judge_.End() == AnswerJudge::Verdict::kBelieved); }

  bool trusted() const { return trusted_; }
  double least_mean() const { return judge_.least_mean(); }
  double released_ms() const { return released_ms_; }
  // The caller has ended the answer behind the first `shown` tokens, perhaps when more of them existed.
  bool stopped() const { return stopped_; }
  size_t shown() const { return shown_; }

 private:
  bool Show(int32_t id) {
    ++shown_;
    stopped_ = request_.on_token && !request_.on_token(id);
    return !stopped_;
  }

  // If the answer is trusted, makes the calls held back. Returns false if the generation must end.
  bool Decide(bool trusted) {
    if (decided_) return true;
    decided_ = true;
    trusted_ = trusted;
    released_ms_ = std::chrono::duration<double, std::milli>(Clock::now() - start_).count();
    if (!trusted_) return false;
    for (const std::function<bool()>& event : events_) {
      if (!event()) return false;
    }
    events_.clear();
    return true;
  }

  bool Tell(std::function<bool()> event) {
    if (decided_) return event();
    events_.push_back(std::move(event));
    return true;
  }

  const Request& request_;
  const Tokenizer* const tokenizer_;
  AnswerJudge judge_;
  Clock::time_point start_;
  std::vector<std::function<bool()>> events_;
  double log_probability_ = 0;  // of the likeliest token at the place of the next one
  bool told_ = false;           // the caller knows that the answer is held back
  bool decided_ = false;
  bool trusted_ = true;
  bool stopped_ = false;
  size_t shown_ = 0;
  double released_ms_ = 0;
};

}  // namespace

Answer Engine::GenerateTrusted(const Request& request) {
  // Without a document cache for this request, the states live as long as the request.
  std::optional<DocumentCache> own;
  DocumentCache* documents = request.use_documents ? documents_.get() : nullptr;
  if (documents == nullptr && comm_ == nullptr) {
    documents =
        &own.emplace(DocumentCacheOptions{.least_taken = 1, .least_new = 1}, [] { return PrefixFormat(); });
  }
  HeldAnswer held(request, tokenizer_.get());
  Answer pruned = GenerateOnce(held.Held(), documents);
  held.End();
  if (held.trusted()) {
    pruned.total_ms += std::max(0.0, held.released_ms() - pruned.total_ms);
    pruned.ttft_ms = std::max(pruned.ttft_ms, held.released_ms());
    if (held.stopped()) {
      pruned.tokens.resize(held.shown());
      pruned.finish_reason = "cancelled";
    }
    return pruned;
  }
  Request rest = request;
  rest.least_confidence = 0;
  rest.prune = "none";
  rest.on_choice = {};
  Answer answer = GenerateOnce(rest, documents);
  answer.fell_back = true;
  answer.auto_reason = std::move(pruned.auto_reason);
  answer.auto_cause = pruned.auto_cause;
  answer.ttft_ms += pruned.total_ms;
  answer.total_ms += pruned.total_ms;
  answer.ledger.selection_flops += pruned.ledger.flops();
  answer.ledger.cached_tokens = pruned.ledger.cached_tokens;
  answer.prune_reason = fmt::format(
      "answered densely: at some place of the pruned answer the likeliest of {} tokens in a row have a mean "
      "probability of {:.2f}, below {:g} ({})",
      AnswerJudge::kInARow, held.least_mean(), request.least_confidence, pruned.prune_spec);
  return answer;
}

}  // namespace coppice
