// Request::least_confidence: replaces a pruned answer by a dense one if the model's confidence is low.
//
// The confidence is the mean log-probability of the likeliest token over the answer's first kHeldTokens
// tokens. On real weights it separates right pruned answers from wrong ones (docs/quality.md); the share of
// dropped attention does not. The caller gets no token before the decision. The dense run reuses the states
// below the method's first choice, so it computes only the layers above.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace coppice {

namespace {

constexpr int64_t kHeldTokens = 8;  // the length of the answers on which the confidence was measured

using Clock = std::chrono::steady_clock;

// Holds back a run's callbacks until the decision.
class HeldAnswer {
 public:
  explicit HeldAnswer(const Request& request) : request_(request), start_(Clock::now()) {}

  // The request with callbacks that are held back.
  Request Held() {
    Request held = request_;
    held.least_confidence = 0;
    held.on_logits = [this](std::span<const float> logits) {
      if (!decided_) {
        sum_ += LogSoftmax(logits).Highest();
        ++count_;
      }
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
      if (!Tell([this, id] { return !request_.on_token || request_.on_token(id); })) return false;
      return decided_ || count_ < kHeldTokens || Decide();
    };
    return held;
  }

  // Decides whether the answer is trusted, and if so makes the calls held back. Returns false if the
  // generation must end.
  bool Decide() {
    if (decided_) return true;
    decided_ = true;
    trusted_ = !active || count_ == 0 || confidence() >= request_.least_confidence;
    released_ms_ = std::chrono::duration<double, std::milli>(Clock::now() - start_).count();
    if (!trusted_) return false;
    for (const std::function<bool()>& event : events_) {
      if (!event()) return false;
    }
    events_.clear();
    return true;
  }

  bool active = false;  // some method acts; otherwise the answer is dense, and trusted
  bool trusted() const { return trusted_; }
  double confidence() const { return std::exp(sum_ / static_cast<double>(count_)); }
  double released_ms() const { return released_ms_; }

 private:
  bool Tell(std::function<bool()> event) {
    if (decided_) return event();
    events_.push_back(std::move(event));
    return true;
  }

  const Request& request_;
  Clock::time_point start_;
  std::vector<std::function<bool()>> events_;
  double sum_ = 0;
  int64_t count_ = 0;
  bool decided_ = false;
  bool trusted_ = true;
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
  HeldAnswer held(request);
  Answer pruned = GenerateOnce(held.Held(), documents, &held.active);
  held.Decide();
  if (held.trusted()) {
    pruned.total_ms += std::max(0.0, held.released_ms() - pruned.total_ms);
    pruned.ttft_ms = held.released_ms();
    return pruned;
  }
  Request rest = request;
  rest.least_confidence = 0;
  rest.prune = "none";
  Answer answer = GenerateOnce(rest, documents);
  answer.fell_back = true;
  answer.auto_reason = std::move(pruned.auto_reason);
  answer.ttft_ms += pruned.total_ms;
  answer.total_ms += pruned.total_ms;
  answer.ledger.selection_flops += pruned.ledger.flops();
  answer.ledger.cached_tokens = pruned.ledger.cached_tokens;
  answer.prune_reason = fmt::format(
      "answered densely: of the pruned answer's first tokens the likeliest have a mean probability of "
      "{:.2f}, "
      "below {:g} ({})",
      held.confidence(), request.least_confidence, pruned.prune_spec);
  return answer;
}

}  // namespace coppice
