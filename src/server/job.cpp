#include "server/job.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/seconds.h"
#include "engine/answer_reader.h"
#include "grammar/matcher.h"
#include "policies/spec.h"
#include "server/errors.h"
#include "server/reuse_watch.h"
#include "server/text_stream.h"

namespace coppice {

namespace {

using Clock = std::chrono::steady_clock;

// A long prompt has tens of thousands of tiles, too many for an event each.
constexpr std::chrono::milliseconds kProgressPause{20};

double Milliseconds(Clock::duration time) { return 1000 * Seconds(time); }

// One run of a job: the engine's request with this job's callbacks, which refer to this object.
class JobRun {
 public:
  JobRun(Engine& engine, Job& job, const JobTurns& turns, PromptHistory* history)
      : engine_(engine),
        job_(job),
        reader_(*engine.tokenizer(), job.split(), job.written_tokens),
        text_(job.stop),
        request_(job.request),
        reuse_(engine, history, job) {
    request_.cancelled = &job.cancelled;
    request_.pause = turns.pause;
    request_.decode = turns.decode;
    request_.others = turns.others;
    request_.rest = turns.rest;
    request_.on_prefix = [this](int64_t tokens) {
      job_.cached = tokens;
      reuse_.Read(tokens);
      job_.events->OnPrefix(tokens);
    };
    request_.on_held = [this] { job_.events->OnHeld(); };
    request_.progress = [this](double layers_done) { Progress(layers_done); };
    request_.on_token = [this](int32_t id) { return Token(id); };
    if (job.thinking && job.thinking_budget) {
      budget_.emplace(*engine.tokenizer(), *job.thinking, *job.thinking_budget);
      request_.force = [this](std::span<const int32_t> answer) { return budget_->Next(answer); };
    }
    if (job.log_probs && job.split()) {
      request_.on_log_probs = [this](const TokenLogProbs& token) { log_probs_.push_back(token); };
    } else if (job.log_probs) {
      request_.on_log_probs = [this](const TokenLogProbs& token) { job_.events->OnLogProbs(token); };
    }
  }

  void Run(JobResult& result) {
    start_ = Clock::now();
    if (job_.arrived != Clock::time_point()) result.queued_ms = Milliseconds(start_ - job_.arrived);
    if (!job_.texts.empty()) return Embed(result);
    result.answer = engine_.Generate(request_);
    reuse_.Ended(result.answer);
    result.reuse = reuse_.report();
    const AnswerReader::Piece rest = reader_.Flush();
    if (!rest.text.empty() || !reader_.thinking()) TellLogProbs();
    result.thought_tail = rest.thought;
    result.tail = text_.Push(rest.text) + text_.Flush();
    result.thinking = reader_.thinking_tokens();
    result.token_gaps = token_gaps_;
    const bool by_token = result.answer.finish_reason == "stop";
    const bool ended = by_token || ended_ || text_.stopped() || result.answer.finish_reason == "complete";
    result.finish_reason = ended ? "stop" : "length";
    result.stop_string = text_.stopped_by();
    result.sampled = static_cast<int64_t>(result.answer.tokens.size()) + (by_token ? 1 : 0);
  }

 private:
  void Embed(JobResult& result) {
    job_.events->OnPrefix(0);
    for (const std::vector<int32_t>& text : job_.texts) {
      if (job_.cancelled) throw Cancelled();
      result.embeddings.push_back(engine_.Embed(
          text, job_.pooling, {.progress = {}, .cancelled = request_.cancelled, .pause = request_.pause}));
      Processed(job_.processed + std::ssize(text));
    }
  }

  void Progress(double layers_done) {
    const double layers = engine_.model().config().shape.layer_count();
    const auto total = static_cast<double>(request_.tokens.size());
    Processed(static_cast<int64_t>(total * std::min(layers_done / layers, 1.0)));
  }

  void Processed(int64_t done) {
    const auto total = std::ssize(request_.tokens);
    if (done <= job_.processed) return;
    job_.processed = done;
    const Clock::time_point now = Clock::now();
    if (done < total && now - last_told_ < kProgressPause) return;
    last_told_ = now;
    job_.events->OnProgress(done, total, Milliseconds(now - start_));
  }

  bool Token(int32_t id) {
    ++job_.decoded;
    const Clock::time_point now = Clock::now();
    if (last_token_ != Clock::time_point()) token_gaps_.Add(Seconds(now - last_token_));
    last_token_ = now;
    if (job_.cancelled) throw Cancelled();
    const auto& stops = job_.stop_token_ids;
    if (std::find(stops.begin(), stops.end(), id) != stops.end()) {
      ended_ = true;
      return false;
    }
    const AnswerReader::Piece piece = reader_.Push(id);
    // Those of earlier tokens wait until it is clear that they are the answer's.
    const size_t earlier = log_probs_.empty() ? 0 : log_probs_.size() - 1;
    if (piece.left_out) log_probs_.erase(log_probs_.begin(), log_probs_.begin() + static_cast<long>(earlier));
    if (!piece.is_answer) log_probs_.clear();
    if (!piece.text.empty()) TellLogProbs();
    if (!piece.thought.empty()) job_.events->OnThought(piece.thought);
    job_.events->OnText(id, text_.Push(piece.text));
    return !text_.stopped();
  }

  void TellLogProbs() {
    for (const TokenLogProbs& token : std::exchange(log_probs_, {})) job_.events->OnLogProbs(token);
  }

  Engine& engine_;
  Job& job_;
  AnswerReader reader_;
  TextStream text_;
  std::optional<ThinkingBudget> budget_;
  std::vector<TokenLogProbs>
      log_probs_;  // of tokens that may be the answer's, if the job tells thinking apart
  Request request_;
  ReuseWatch reuse_;
  Clock::time_point start_;
  Clock::time_point last_told_;
  Clock::time_point last_token_;
  Histogram token_gaps_{kTokenGapBounds};
  bool ended_ = false;
};

// The reply for the exception being handled. May itself throw, because a fault allocates.
HttpFault FaultAtHand(const Job& job) {
  try {
    throw;
  } catch (const Cancelled&) {
    return CancelledFault(job.server_stops);
  } catch (const std::bad_alloc&) {
    return {503, "unavailable_error", "out of memory: a shorter prompt or a pruning method may fit"};
  } catch (const HttpError& error) {
    return error.fault();
  } catch (const PruneError& error) {  // what parsing cannot tell: a method that several processes refuse
    return BadField("prune", error.what()).fault();
  } catch (const GrammarError& error) {  // what compiling cannot tell: an ambiguous grammar
    return {400, "invalid_request_error", error.what()};
  } catch (const std::exception& error) {
    return {500, "server_error", error.what()};
  }
}

// Tells the job's events of the exception being handled.
void TellFault(Job& job) {
  try {
    job.events->OnError(FaultAtHand(job));
  } catch (const std::exception&) {  // no memory even for the error reply; the client gets none
  }
}

}  // namespace

bool RunJob(Engine& engine, Job& job, const JobTurns& turns, JobResult& result, PromptHistory* history) {
  try {
    if (job.cancelled) throw Cancelled();
    JobRun(engine, job, turns, history).Run(result);
    job.events->OnDone(result);
    return true;
  } catch (const Cancelled&) {
    result.cancelled = true;
    TellFault(job);
  } catch (const std::exception&) {
    TellFault(job);
  }
  return false;
}

}  // namespace coppice
