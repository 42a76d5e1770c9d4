#include "engine/engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/field_error.h"
#include "base/limits.h"
#include "engine/fingerprint.h"
#include "engine/open_model.h"
#include "engine/prefix_run.h"
#include "model/synthetic.h"
#include "policies/registry.h"

namespace coppice {

namespace {

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

Transformer MakeTransformer(std::shared_ptr<const TensorStore> store, ModelConfig config) {
  std::shared_ptr<const Weights> weights = Weights::Load(std::move(store), config);
  return {std::move(config), std::move(weights)};
}

void TellLogProbs(const Request& request, int32_t token, const Tensor& logits) {
  if (!request.on_log_probs) return;
  request.on_log_probs(LogSoftmax(logits.view().Row<float>(0)).Around(token, request.top_log_probs));
}

void NoteProbability(double log_probability, Confidence& confidence) {
  if (confidence.tokens == 0) confidence.first_probability = std::exp(log_probability);
  const auto n = static_cast<double>(confidence.tokens++);
  confidence.mean_log_probability += (log_probability - confidence.mean_log_probability) / (n + 1);
}

}  // namespace

Engine::Engine(std::shared_ptr<const TensorStore> store, ModelConfig config,
               std::unique_ptr<Tokenizer> tokenizer, const EngineOptions& options)
    : store_(std::move(store)),
      tokenizer_(std::move(tokenizer)),
      backend_(MakeBackend(
          options.backend,
          {.threads = options.threads, .exact = options.exact, .cache_type = options.cache_type})),
      transformer_(MakeTransformer(store_, std::move(config))),
      calibrations_(*store_, transformer_.config()),
      context_(options.context > 0 ? options.context : transformer_.config().context),
      cold_options_(options.cold),
      tile_rows_(std::max<int64_t>(options.tile_rows, 1)) {
  transformer_.CheckCacheType(*backend_);
  if (context_ > limits::kMaxContext)
    throw FieldError("context", " {}: at most {}", context_, limits::kMaxContext);
  if (options.time_operations) {
    auto timed = std::make_unique<TimedBackend>(std::move(backend_));
    timed_ = timed.get();
    backend_ = std::move(timed);
  }
  if (options.check_tensors) {
    for (const TensorFinding& finding : CheckTensors(*store_)) {
      if (!finding.finite) throw Error("{}: {}", store_->path(), finding.text);
    }
  }
  if (!options.documents) return;
  documents_ = std::make_unique<DocumentCache>(*options.documents, [this, exact = options.exact] {
    const ModelConfig& model = transformer_.config();
    return PrefixFormat{.fingerprint = FingerprintOf(*store_, model, *backend_, exact),
                        .cache_type = backend_->cache_dtype(),
                        .layers = model.shape.layers,
                        .key_width = int64_t{model.shape.kv_heads} * model.shape.head_dim,
                        .hidden = model.shape.hidden,
                        .vocab = model.shape.vocab};
  });
}

std::unique_ptr<Engine> Engine::Load(const std::string& path, const EngineOptions& options) {
  OpenedModel model = OpenModel(path);
  return std::unique_ptr<Engine>(
      new Engine(std::move(model.store), std::move(model.config), std::move(model.tokenizer), options));
}

std::unique_ptr<Engine> Engine::FromShape(const std::string& shape, const EngineOptions& options) {
  SyntheticModel model = ParseShape(shape);
  ModelConfig config = model.config;
  return std::unique_ptr<Engine>(new Engine(MakeSyntheticStore(model), std::move(config), nullptr, options));
}

void Engine::CheckTokens(std::span<const int32_t> prompt) const {
  const auto tokens = static_cast<int64_t>(prompt.size());
  if (tokens == 0) throw Error("the prompt is empty");
  for (const int32_t id : prompt) {
    if (id < 0 || id >= transformer_.config().shape.vocab) {
      throw Error("prompt token {} is not in the vocabulary of {}", id, transformer_.config().shape.vocab);
    }
  }
  if (tokens > context_) {
    throw FieldError("context",
                     " {}: the prompt has {} tokens; shorten it, or raise the context where the model allows",
                     context_, tokens);
  }
}

void Engine::CheckRequest(const Request& request) const {
  CheckTokens(request.tokens);
  for (const int32_t id : request.forced) {
    if (id < 0 || id >= transformer_.config().shape.vocab) {
      throw Error("forced token {} is not in the vocabulary of {}", id, transformer_.config().shape.vocab);
    }
  }
  if (!(request.least_confidence >= 0 && request.least_confidence <= 1))
    throw FieldError("least_confidence", " {}: not a probability from 0 to 1", request.least_confidence);
  if (request.max_tokens < -1)
    throw FieldError("max_tokens", " {}: not a whole number from -1", request.max_tokens);
  if (request.protection.first < 0)
    throw FieldError("protect_first", " {}: not a number of tokens", request.protection.first);
  if (request.protection.last < 0)
    throw FieldError("protect_last", " {}: not a number of tokens", request.protection.last);
  int64_t behind = 0;
  for (const PositionSpan& span : request.question) {
    if (span.begin < behind || span.end <= span.begin ||
        span.end > static_cast<int64_t>(request.tokens.size())) {
      throw FieldError("question",
                       " {}:{}: spans ascend, hold a token each and lie inside the prompt of {} tokens",
                       span.begin, span.end, request.tokens.size());
    }
    behind = span.end;
  }
  Validate(request.sampling);
}

// What one request computes with.
struct Engine::Run {
  PruneChoice prune;
  std::string auto_reason;
  SequenceState sequence;
  std::unique_ptr<Workspace> workspace;
  Tensor logits;        // [1, vocab], of the last position
  int64_t wanted = 0;   // tokens to generate, at most
  int64_t decoded = 0;  // steps after the prefill
  Clock::time_point first_token;
  OpTimes before;                     // of all requests, when this one began
  OpTimes prefill_times;              // its own, until the first token
  double selection_flops = 0;         // of second models that chose tokens
  std::vector<DroppedShare> dropped;  // where the request asks for confidence
  Confidence confidence;
};

MethodContext Engine::Context(const Request& request, Run& run) {
  MethodContext context{.shape = transformer_.config().shape,
                        .tokens = static_cast<int64_t>(request.tokens.size()),
                        .prompt = request.tokens,
                        .question = request.question};
  if (request.confidence) context.dropped = &run.dropped;
  if (!tokenizer_) return context;
  context.pieces = [this, &request] { return PiecesOf(*tokenizer_, request.tokens); };
  context.open_scorer = [this, &request, &run](const std::string& path) -> TokenScores {
    return [this, &request, &run, scorer = Scorer(path)] {
      ScoredText scored = scorer->Score(PiecesOf(*tokenizer_, request.tokens),
                                        {request.scoring, request.cancelled, request.pause}, *backend_);
      run.selection_flops += scored.flops;
      return std::move(scored.bits);
    };
  };
  return context;
}

std::shared_ptr<TextScorer> Engine::Scorer(const std::string& path) {
  if (!scorer_ || scorer_->path() != path) {
    scorer_.reset();  // not two second models in memory
    scorer_ = std::make_shared<TextScorer>(path, tile_rows_);
  }
  return scorer_;
}

// What the model does not know of a run: names and texts.
void Engine::NameTrace(const Request& request, const Answer& answer, Trace& trace) const {
  trace.model = store_->path();
  trace.spec = answer.prune_spec;
  trace.backend = fmt::format("{} ({})", backend_->name(), backend_->isa());
  for (const std::vector<int32_t>* list : {&request.tokens, &answer.tokens}) {
    for (const int32_t id : *list) trace.tokens.push_back(tokenizer_ ? tokenizer_->Piece(id, true) : "");
  }
}

std::unique_ptr<Workspace> Engine::TakeWorkspace() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Workspace> workspace = std::move(idle_.back());
      idle_.pop_back();
      return workspace;
    }
  }
  return std::make_unique<Workspace>(transformer_.NewWorkspace(tile_rows_));
}

void Engine::PutBack(std::unique_ptr<Workspace> workspace) {
  workspace->control = {};
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(workspace));
}

void Engine::Prefill(const Request& request, TokenPolicy& policy, SequenceState& sequence,
                     Workspace& workspace, Tensor& logits) {
  workspace.control = {request.progress, request.cancelled, request.pause};
  const std::span<const int32_t> tokens = request.tokens;
  if (request.prompt_log_probs && request.on_log_probs) {
    transformer_.PrefillScored(
        tokens, sequence, workspace, *backend_, logits, [&](int64_t first, const TensorView& rows) {
          for (int64_t row = 0; row < rows.rows; ++row) {
            const int32_t next = tokens[static_cast<size_t>(first + row + 1)];
            request.on_log_probs(LogSoftmax(rows.Row<float>(row)).Around(next, request.top_log_probs));
          }
        });
  } else {
    transformer_.Prefill(tokens, policy, sequence, workspace, *backend_, logits);
  }
  workspace.control.progress = nullptr;
}

void Engine::Score(std::span<const int32_t> tokens, const LogitsVisitor& visit,
                   const std::atomic<bool>* cancelled) {
  CheckTokens(tokens);
  const auto count = static_cast<int64_t>(tokens.size());
  SequenceState sequence = transformer_.NewSequence(count, count, *backend_);
  std::unique_ptr<Workspace> workspace = TakeWorkspace();
  workspace->control = {nullptr, cancelled, nullptr};
  Tensor last;
  transformer_.PrefillScored(tokens, sequence, *workspace, *backend_, last, visit);
  PutBack(std::move(workspace));
}

// Prefill, from where the document cache's states end, and what it leaves to the next.
void Engine::PrefillRest(const Request& request, DocumentCache* documents, Run& run) {
  // Where every position's logits are wanted, every position is computed.
  const bool scored = request.prompt_log_probs && request.on_log_probs;
  PrefixRun prefix(scored ? nullptr : documents, request.tokens, *run.prune.policy,
                   transformer_.config().shape, run.sequence);
  if (request.on_prefix) request.on_prefix(run.sequence.prefix.rows);
  try {
    Prefill(request, *run.prune.policy, run.sequence, *run.workspace, run.logits);
  } catch (const Cancelled&) {
    prefix.Keep();
    throw;
  }
  prefix.Keep();
}

// The first token, and those after it.
void Engine::Decode(const Request& request, Run& run, Answer& answer) {
  Sampler sampler(request.sampling);
  std::vector<int32_t> history = request.tokens;
  const auto choose = [&] {
    const size_t index = answer.tokens.size();
    const std::span<const float> logits = run.logits.view().Row<float>(0);
    const int32_t id =
        index < request.forced.size() ? request.forced[index] : sampler.Sample(logits, history);
    if (request.confidence) NoteProbability(LogSoftmax(logits).Highest(), run.confidence);
    return id;
  };
  int32_t next = choose();
  run.first_token = Clock::now();
  if (timed_ != nullptr) run.prefill_times = timed_->times() - run.before;
  answer.finish_reason = "length";
  // A full context still has a next token, though no place for it.
  if (run.wanted == 0 && request.max_tokens != 0) TellLogProbs(request, next, run.logits);
  while (static_cast<int64_t>(answer.tokens.size()) < run.wanted) {
    if (request.on_logits) request.on_logits(run.logits.view().Row<float>(0));
    TellLogProbs(request, next, run.logits);
    if (!request.ignore_eos && tokenizer_ && tokenizer_->EndsGeneration(next)) {
      answer.finish_reason = "stop";
      break;
    }
    answer.tokens.push_back(next);
    history.push_back(next);
    if (request.on_token && !request.on_token(next)) {
      answer.finish_reason = "cancelled";
      break;
    }
    if (static_cast<int64_t>(answer.tokens.size()) == run.wanted) break;
    transformer_.Decode(next, *run.prune.policy, run.sequence, *run.workspace, *backend_, run.logits);
    ++run.decoded;
    next = choose();
  }
}

// The ledger's bytes and what else is told of a run, at the end.
void Engine::Account(const Request& request, Run& run, Answer& answer) const {
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
  ledger.kv_bytes_dense = 2 * s.layers * positions *
                          BytesOf(backend_->cache_dtype(), static_cast<int64_t>(s.kv_heads) * s.head_dim);
  for (const DroppedShare& drop : run.dropped)
    run.confidence.dropped_mass = std::max(run.confidence.dropped_mass, drop.share);
  if (request.confidence) answer.confidence = run.confidence;
  answer.prune_spec = std::move(run.prune.spec);
  answer.prune_active = run.prune.active;
  answer.prune_reason = std::move(run.prune.reason);
  answer.auto_reason = std::move(run.auto_reason);
  answer.ledger = std::move(ledger);
}

Answer Engine::Generate(const Request& request) {
  CheckRequest(request);
  if (request.least_confidence > 0) return GenerateTrusted(request);
  return GenerateOnce(request, request.use_documents ? documents_.get() : nullptr);
}

Answer Engine::GenerateOnce(const Request& request, DocumentCache* documents, bool* active) {
  const OpTimes before = timed_ != nullptr ? timed_->times() : OpTimes();
  const Clock::time_point start = Clock::now();
  const auto prompt_tokens = static_cast<int64_t>(request.tokens.size());
  const int64_t room = context_ - prompt_tokens;

  Run run;
  ResolvedPrune resolved = ResolvePrune(request.prune, prompt_tokens);
  run.prune = MakePolicy(resolved.spec, Context(request, run), request.protection);
  run.auto_reason = std::move(resolved.reason);
  if (active != nullptr) *active = run.prune.active;
  run.wanted = request.max_tokens < 0 ? room : std::min(request.max_tokens, room);
  run.sequence = transformer_.NewSequence(prompt_tokens, prompt_tokens + run.wanted, *backend_);
  run.sequence.cold_options = cold_options_;
  run.sequence.trace = request.trace;
  run.before = before;
  // A folder that cannot hold the cold tier is found before the work, not after.
  if (run.prune.policy->OffloadBlock() > 0) OpenColdFile(cold_options_, 4096);
  if (request.prompt_log_probs && run.prune.active) {
    throw Error("log-probabilities of the prompt need all of it: they do not go with the method {}",
                run.prune.spec);
  }
  // Where the request fails it goes, and the memory with it; nobody can tell how far it got.
  run.workspace = TakeWorkspace();
  PrefillRest(request, documents, run);
  run.sequence.ledger.selection_flops = run.selection_flops;

  Answer answer;
  Decode(request, run, answer);
  const Clock::time_point end = Clock::now();
  PutBack(std::move(run.workspace));

  answer.ttft_ms = Milliseconds(start, run.first_token);
  answer.total_ms = Milliseconds(start, end);
  answer.prefill_times = run.prefill_times;
  const double decode_ms = Milliseconds(run.first_token, end);
  if (run.decoded > 0 && decode_ms > 0)
    answer.decode_tokens_per_second = 1000 * static_cast<double>(run.decoded) / decode_ms;
  Account(request, run, answer);
  if (request.trace != nullptr) NameTrace(request, answer, request.trace->trace());
  return answer;
}

}  // namespace coppice
