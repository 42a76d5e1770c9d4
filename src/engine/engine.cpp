// One request, from the prompt's tokens to the answer: Generate is the top, and the functions below it come
// in the order in which they run.
#include "engine/engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "engine/documents/common_prefix.h"
#include "engine/documents/prefix_run.h"
#include "engine/filter_pass.h"
#include "engine/follow.h"
#include "engine/prompt_lookup.h"
#include "grammar/token_filter.h"
#include "policies/registry.h"

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

void NoteProbability(double log_probability, Confidence& confidence) {
  if (confidence.tokens == 0) confidence.first_probability = std::exp(log_probability);
  const auto n = static_cast<double>(confidence.tokens++);
  confidence.mean_log_probability += (log_probability - confidence.mean_log_probability) / (n + 1);
}

std::vector<int32_t> EndsOf(const Request& request, const Tokenizer* tokenizer) {
  std::vector<int32_t> ends = request.ends;
  for (int32_t id = 0; tokenizer != nullptr && id < tokenizer->vocab_size(); ++id) {
    if (tokenizer->EndsGeneration(id)) ends.push_back(id);
  }
  std::ranges::sort(ends);
  return ends;
}

}  // namespace

struct Engine::Run {
  explicit Run(const Request& r)
      : request(r), lookup(r.prompt_lookup), sampler(r.sampling, std::ssize(r.tokens)), history(r.tokens) {
    if (r.grammar && r.forced.empty()) filter.emplace(r.grammar);
  }

  // For passes that score the prompt. Every process computes such a pass whole, unless it can be split.
  RunControl ScoringControl() {
    RunControl control{{}, request.cancelled, request.pause};
    if (split) control = split->control();
    control.progress = request.scoring;
    return control;
  }
  std::span<const float> last_logits() const { return logits.view().Row<float>(accepted); }
  // The token that follows `history`.
  int32_t NextToken() {
    const size_t index = history.size() - request.tokens.size();
    const bool may_end = std::ssize(history) - std::ssize(request.tokens) >= request.min_tokens;
    const int32_t id = index < request.forced.size()
                           ? request.forced[index]
                           : sampler.Sample(last_logits(), history, filter ? &*filter : nullptr,
                                            may_end ? std::span<const int32_t>() : ends);
    if (request.confidence) NoteProbability(LogSoftmax(last_logits()).Highest(), confidence);
    return id;
  }

  const Request& request;
  PruneChoice prune;
  std::string auto_reason;
  SequenceState sequence;
  std::unique_ptr<Workspace> workspace;
  Tensor logits;  // [1 + proposals, vocab], of the last step
  PromptLookup lookup;
  std::vector<int32_t> ahead;  // the tokens behind the first of the last step: proposals
  int64_t accepted = 0;        // of these, those that the text goes on with
  Sampler sampler;
  std::optional<TokenFilter> filter;
  std::vector<int32_t> history;       // the prompt and the generated tokens
  std::vector<int32_t> ends;          // ascending: the tokens that Request::min_tokens puts off
  int64_t wanted = 0;                 // tokens to generate, at most
  int64_t decoded = 0;                // decode steps
  double selection_flops = 0;         // of passes that chose tokens
  std::string spec;                   // as it was resolved
  std::optional<Split> split;         // if several processes prefill
  std::vector<DroppedShare> dropped;  // if the request asks for confidence
  Confidence confidence;
};

Answer Engine::Generate(const Request& request) {
  CheckRequest(request, transformer_.config().shape.vocab, context_);
  if (request.least_confidence > 0) return GenerateTrusted(request);
  return GenerateOnce(request, request.use_documents ? documents_.get() : nullptr);
}

Answer Engine::GenerateOnce(const Request& request, DocumentCache* documents, bool* active) {
  const OpTimes before = timed_ != nullptr ? timed_->times() : OpTimes();  // of all requests so far
  const Clock::time_point start = Clock::now();
  Answer answer;
  Run run(request);  // if the request fails, its workspace, which may be in any state, is freed
  Prepare(run, documents);
  if (active != nullptr) *active = run.prune.active;
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

void Engine::Prepare(Run& run, const DocumentCache* documents) {
  const Request& request = run.request;
  const int64_t prompt_tokens = std::ssize(request.tokens);
  ResolvedPrune resolved = ResolveFor(request, documents != nullptr);
  run.prune = MakePolicy(resolved.spec, Context(run), request.protection);
  run.spec = std::move(resolved.spec);
  run.auto_reason = std::move(resolved.reason);
  CheckProcesses(run.prune);
  if (request.complete && documents != nullptr && run.prune.active) PreferDense(run, *documents);
  if (request.prompt_log_probs && run.prune.active) {
    throw Error("log-probabilities of the prompt need all of it: they do not go with the method {}",
                run.prune.spec);
  }
  // Throws before the prefill if the cold tier cannot be opened, which belongs to the process that decodes.
  if (run.prune.policy->Facts().offload_block > 0 && (comm_ == nullptr || comm_->leads()))
    OpenColdTier(cold_options_, 4096, backend_->memory());
  if (request.min_tokens > 0) run.ends = EndsOf(request, tokenizer_.get());
  const int64_t room = context_ - prompt_tokens;
  run.wanted = request.max_tokens < 0 ? room : std::min(request.max_tokens, room);
  const ModelShape& shape = transformer_.config().shape;
  CheckFits({.keys_values = prompt_tokens * shape.layers * LayerBytes(shape, backend_->cache_dtype()),
             .workspace = Workspace::Bytes(shape, prompt_tokens, tile_rows_)});
  run.sequence = transformer_.NewSequence(prompt_tokens, prompt_tokens + run.wanted, *backend_);
  run.sequence.cold_options = cold_options_;
  run.sequence.trace = request.trace;
  run.workspace = TakeWorkspace();
}

void Engine::CheckProcesses(const PruneChoice& choice) const {
  if (comm_ == nullptr) return;
  if (const std::string why = SplitRefusal(*choice.policy, transformer_.config().shape.layers); !why.empty())
    throw PruneError("{}: does not go with {} processes: {}", choice.spec, comm_->size(), why);
}

void Engine::PreferDense(Run& run, const DocumentCache& documents) {
  const Request& request = run.request;
  const int64_t dense =
      documents.DenseTokens(request.tokens, transformer_.config().shape.layers, request.documents_owner);
  if (!IsMost(dense, std::ssize(request.tokens))) return;
  run.prune = MakePolicy("none", Context(run), {});
  run.prune.reason = fmt::format("the document's read is complete: {} tokens have dense states", dense);
}

MethodContext Engine::Context(Run& run) {
  const Request& request = run.request;
  MethodContext context{.shape = transformer_.config().shape,
                        .tokens = std::ssize(request.tokens),
                        .prompt = request.tokens,
                        .question = request.question,
                        .evidence = request.evidence,
                        .parked_bytes = ParkedBytes(transformer_.config().shape, backend_->cache_dtype()),
                        .layer_bytes = LayerBytes(transformer_.config().shape, backend_->cache_dtype())};
  if (request.confidence) context.dropped = &run.dropped;
  context.first_layers = [this, &run](int layer) {
    const Request& r = run.request;
    FilterReading reading = RunFilter(transformer_, r.tokens, layer, *run.workspace, run.ScoringControl(),
                                      *backend_, run.split ? &*run.split : nullptr);
    run.selection_flops += reading.flops;
    return std::move(reading.scores);
  };
  if (!tokenizer_) return context;
  context.pieces = [this, &request] { return PiecesOf(*tokenizer_, request.tokens); };
  context.open_scorer = [this, &run](const std::string& path) -> TokenScores {
    return [this, &run, scorer = Scorer(path)] {
      const Request& r = run.request;
      ScoredText scored = scorer->Score(PiecesOf(*tokenizer_, r.tokens), run.ScoringControl(), *backend_);
      run.selection_flops += scored.flops;
      return std::move(scored.bits);
    };
  };
  context.open_words = [this, &run](const std::string& path) -> WordReader {
    return [this, &run, reader = WordsOf(path)] {
      const Request& r = run.request;
      ReadText read = reader->Read(PiecesOf(*tokenizer_, r.tokens), run.ScoringControl(), *backend_);
      run.selection_flops += read.flops;
      return std::move(read.words);
    };
  };
  context.open_draft = [this, &run](const std::string& path) -> Draft {
    std::shared_ptr<DraftReader> draft = DraftOf(path);
    Draft opened{.reason = draft->Refusal(run.request.tokens)};
    opened.read = [this, &run, draft = std::move(draft)](int look_ahead, int pool) {
      const Request& r = run.request;
      DraftReading reading = draft->Read(r.tokens, look_ahead, pool, run.ScoringControl(), *backend_);
      run.selection_flops += reading.flops;
      return std::move(reading.importance);
    };
    return opened;
  };
  return context;
}

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
  PrefixRun prefix(ScoresPrompt(request) ? nullptr : documents, request, transformer_.config().shape, pass);
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
  const ModelShape& s = transformer_.config().shape;
  const int64_t positions = ledger.prompt_tokens() + run.decoded;
  ledger.kv_bytes_dense =
      2 * s.layers * positions * BytesOf(backend_->cache_dtype(), int64_t{s.kv_heads} * s.head_dim);
  for (const DroppedShare& drop : run.dropped)
    run.confidence.dropped_mass = std::max(run.confidence.dropped_mass, drop.share);
  if (run.request.confidence) answer.confidence = run.confidence;
  answer.prune_spec = std::move(run.prune.spec);
  answer.prune_active = run.prune.active;
  answer.prune_reason = std::move(run.prune.reason);
  if (run.prune.active) answer.protected_spans = SpansOf(run.request.protection, ledger.prompt_tokens());
  answer.auto_reason = std::move(run.auto_reason);
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
