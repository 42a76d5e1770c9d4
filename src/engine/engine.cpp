// One request, from the prompt's tokens to the answer: Generate is the top, and the functions below it come
// in the order in which they run. engine_prepare.cpp has the first of them.
#include "engine/engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <utility>

#include "base/error.h"
#include "engine/documents/prefix_run.h"
#include "engine/engine_run.h"
#include "engine/follow.h"

namespace coppice {

namespace {

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

bool ScoresPrompt(const Request& request) { return request.prompt_log_probs && request.on_log_probs; }

void TellLogProbs(const Request& request, int32_t token, std::span<const float> logits) {
  if (request.on_log_probs) request.on_log_probs(LogSoftmax(logits).Around(token, request.top_log_probs));
}

}  // namespace

Answer Engine::Generate(const Request& request) {
  CheckRequest(request, transformer_.config().shape.vocab, context_);
  if (request.least_confidence > 0) return GenerateTrusted(request);
  return GenerateOnce(request, request.use_documents ? documents_.get() : nullptr);
}

Answer Engine::GenerateOnce(const Request& request, DocumentCache* documents) {
  const OpTimes before = timed_ != nullptr ? timed_->times() : OpTimes();  // of all requests so far
  const Clock::time_point start = Clock::now();
  Answer answer;
  Run run(request);  // if the request fails, its workspace, which may be in any state, is freed
  Prepare(run, documents);
  if (request.on_choice)
    request.on_choice({run.spec, run.prune.spec, run.prune.active, run.prune.reason, run.auto_reason});
  Prefill(run, documents);
  const int32_t first = run.NextToken();
  const Clock::time_point first_token = Clock::now();
  if (timed_ != nullptr) answer.prefill_times = timed_->times() - before;

  Decode(run, first, answer);
  const Clock::time_point end = Clock::now();
  PutBack(std::move(run.workspace));

  answer.ttft_ms = Milliseconds(start, first_token);
  answer.total_ms = Milliseconds(start, end);
  const double decode_ms = Milliseconds(first_token, end);
  if (run.decoded > 0 && decode_ms > 0)
    answer.decode_tokens_per_second = 1000 * static_cast<double>(run.decoded) / decode_ms;
  Account(run, answer);
  if (request.trace != nullptr) NameTrace(request, answer, request.trace->trace());
  return answer;
}

namespace {

// Where a prompt has control tokens: templates begin and end messages with them.
std::vector<int64_t> TurnsOf(std::span<const int32_t> tokens, const Tokenizer& tokenizer) {
  std::map<int32_t, bool> is_control;
  std::vector<int64_t> turns;
  for (size_t i = 1; i < tokens.size(); ++i) {
    const auto [known, is_new] = is_control.try_emplace(tokens[i]);
    if (is_new)
      known->second = tokenizer.Piece(tokens[i]).empty() && !tokenizer.Piece(tokens[i], true).empty();
    if (known->second) turns.push_back(static_cast<int64_t>(i));
  }
  return turns;
}

}  // namespace

// Computes the part of the prompt that is not in the document cache, and adds it to the cache. Does not use
// the cache for log-probabilities of the prompt, because these need every position.
void Engine::Prefill(Run& run, DocumentCache* documents) {
  const Request& request = run.request;
  // Log-probabilities of the prompt need every row's logits: process 0 computes such a prompt alone.
  if (comm_ != nullptr && !ScoresPrompt(request)) return PrefillTogether(run);
  const std::span<const int32_t> tokens = request.tokens;
  const Pass pass{*run.prune.policy,
                  run.sequence,
                  *run.workspace,
                  *backend_,
                  {request.progress, request.cancelled, request.pause}};
  const ModelShape& shape = transformer_.config().shape;
  std::vector<int64_t> turns;
  if (documents != nullptr && shape.HasStates() && tokenizer_) turns = TurnsOf(tokens, *tokenizer_);
  PrefixRun prefix(ScoresPrompt(request) ? nullptr : documents, request, shape, pass, turns);
  if (request.on_prefix) request.on_prefix(run.sequence.prefix.rows);
  try {
    if (ScoresPrompt(request)) {
      const LogitsVisitor tell = [&](int64_t position, const TensorView& logits) {
        for (int64_t row = 0; row < logits.rows; ++row)
          TellLogProbs(request, tokens[static_cast<size_t>(position + row + 1)], logits.Row<float>(row));
      };
      transformer_.PrefillScored(tokens, pass, run.logits,
                                 request.tell_prompt_log_probs ? tell : LogitsVisitor());
    } else {
      transformer_.Prefill(tokens, pass, run.logits);
    }
  } catch (const Cancelled&) {
    prefix.Keep();
    throw;
  }
  prefix.Keep();
  run.sequence.ledger.selection_flops = run.selection_flops;
}

void Engine::PrefillTogether(Run& run) {
  const Request& request = run.request;
  if (request.on_prefix) request.on_prefix(0);
  if (comm_->leads()) SendPrefill(*comm_, id_, request, run.spec);
  const WorkMeter meter(*comm_);
  run.split.emplace(*comm_, RunControl{request.progress, request.cancelled, request.pause});
  const Pass pass{*run.prune.policy, run.sequence,         *run.workspace,
                  *backend_,         run.split->control(), &*run.split};
  try {
    transformer_.Prefill(request.tokens, pass, run.logits);
    run.sequence.ledger.processes = meter.OfAll(run.split->computed);
  } catch (const Cancelled&) {
    throw;  // in all processes at the same place: they stay usable
  } catch (const std::exception& error) {
    comm_->Abort(error.what());  // the others wait for this process's rows
  }
  run.sequence.ledger.selection_flops = run.selection_flops;
}

void Engine::Assist(const Request& request) {
  Run run(request);
  try {
    Prepare(run, nullptr);
  } catch (const std::exception& error) {
    comm_->Abort(error.what());
  }
  PrefillTogether(run);
  PutBack(std::move(run.workspace));
}

// Generates the answer. `first`: its first token, which was sampled after the prefill.
void Engine::Decode(Run& run, int32_t first, Answer& answer) {
  const Request& request = run.request;
  const Pass pass{*run.prune.policy,
                  run.sequence,
                  *run.workspace,
                  *backend_,
                  {.progress = {}, .cancelled = request.cancelled, .pause = request.pause}};
  const bool plain = (request.decode || request.prompt_lookup > 0) && IsPlainDecode(pass);
  answer.finish_reason = "length";
  // If the context is full, the next token's probability is reported, but the token is not generated.
  if (run.wanted == 0 && request.max_tokens != 0) TellLogProbs(request, first, run.last_logits());
  for (int32_t next = first; std::ssize(answer.tokens) < run.wanted; next = run.NextToken()) {
    if (request.on_logits) request.on_logits(run.last_logits());
    TellLogProbs(request, next, run.last_logits());
    if (!request.ignore_eos && tokenizer_ && tokenizer_->EndsGeneration(next)) {
      answer.finish_reason = "stop";
      break;
    }
    answer.tokens.push_back(next);
    run.history.push_back(next);
    if (request.on_token && !request.on_token(next)) {
      answer.finish_reason = "cancelled";
      break;
    }
    if (run.filter) run.filter->Accept(next);
    if (run.filter && run.filter->done()) {
      answer.finish_reason = "complete";
      break;
    }
    if (std::ssize(answer.tokens) == run.wanted) break;
    if (plain) {
      PlainStep(run, next, pass);
    } else {
      transformer_.Decode(next, pass, run.logits);
    }
    ++run.decoded;
  }
  DropProposals(run);
  answer.proposed = run.lookup.proposed();
  answer.accepted = run.lookup.accepted();
}

// Provides the logits behind `next`: the last step's, if that computed `next` ahead, else those of a step
// with what lookup proposes behind it.
void Engine::PlainStep(Run& run, int32_t next, const Pass& pass) {
  if (run.accepted < std::ssize(run.ahead) && run.ahead[static_cast<size_t>(run.accepted)] == next) {
    ++run.accepted;
    return;
  }
  DropProposals(run);
  const int64_t generated = std::ssize(run.history) - std::ssize(run.request.tokens);
  const int64_t room = std::min(run.wanted - generated - 1, tile_rows_ - 1);
  if (!run.request.others || !run.request.others()) run.ahead = run.lookup.Propose(run.history, room);
  std::vector<int32_t> tokens = {next};
  tokens.insert(tokens.end(), run.ahead.begin(), run.ahead.end());
  DecodeStep step{tokens, pass, run.logits};
  if (run.request.decode) {
    run.request.decode(step);
  } else {
    pass.control.Pause();
    DecodeStep* const one = &step;
    DecodeTogether({&one, 1});
  }
}

// Takes back the proposals that the text did not go on with.
void Engine::DropProposals(Run& run) {
  run.lookup.Learn(run.accepted);
  run.sequence.DropLast(std::ssize(run.ahead) - run.accepted);
  run.ahead.clear();
  run.accepted = 0;
}

// Fills in the answer, except for tokens and times.
void Engine::Account(Run& run, Answer& answer) const {
  SequenceState& sequence = run.sequence;
  Ledger& ledger = sequence.ledger;
  ledger.kv_bytes = sequence.kv_bytes();
  ledger.aux_bytes = sequence.aux.bytes();
  ledger.cold_bytes = sequence.cold_bytes();
  if (sequence.cold) {
    ledger.blocks_written = sequence.cold->blocks_written();
    ledger.blocks_loaded = sequence.cold->blocks_loaded();
  }
  ledger.kv_bytes_dense = sequence.dense_kv_bytes(ledger.prompt_tokens() + run.decoded);
  for (const DroppedShare& drop : run.dropped)
    run.confidence.dropped_mass = std::max(run.confidence.dropped_mass, drop.share);
  if (run.request.confidence) answer.confidence = run.confidence;
  answer.prune_spec = std::move(run.prune.spec);
  answer.prune_active = run.prune.active;
  answer.prune_reason = std::move(run.prune.reason);
  if (run.prune.active) answer.protected_spans = SpansOf(run.request.protection, ledger.prompt_tokens());
  answer.auto_reason = std::move(run.auto_reason);
  answer.auto_cause = run.auto_cause;
  answer.ledger = std::move(ledger);
}

// Adds to the trace the model's path, the spec, the backend and the text of each token.
void Engine::NameTrace(const Request& request, const Answer& answer, Trace& trace) const {
  trace.model = store_->path();
  trace.spec = answer.prune_spec;
  trace.backend = fmt::format("{} ({})", backend_->name(), backend_->isa());
  for (const std::vector<int32_t>* list : {&request.tokens, &answer.tokens}) {
    for (const int32_t id : *list) trace.tokens.push_back(tokenizer_ ? tokenizer_->Piece(id, true) : "");
  }
}

}  // namespace coppice
