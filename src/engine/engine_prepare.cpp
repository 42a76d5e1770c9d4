// What happens before a prefill: the method is chosen, and memory is found.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/documents/common_prefix.h"
#include "engine/dry_run.h"
#include "engine/engine_run.h"
#include "engine/filter_pass.h"

namespace coppice {

namespace {

// Without an exponent, which readers of a page do not expect.
std::string Gflop(double flops) {
  return flops < 1e10 ? fmt::format("{:.2g}", flops / 1e9) : fmt::format("{:.0f}", flops / 1e9);
}

std::vector<int32_t> EndsOf(const Request& request, const Tokenizer* tokenizer) {
  std::vector<int32_t> ends = request.ends;
  for (int32_t id = 0; tokenizer != nullptr && id < tokenizer->vocab_size(); ++id) {
    if (tokenizer->EndsGeneration(id)) ends.push_back(id);
  }
  std::ranges::sort(ends);
  return ends;
}

// Whether a method leaves work of a prefill out. Methods that only evict keys, or choose them in decode, save
// memory and time of later tokens: what their prefill costs is no reason against them.
bool SavesPrefill(const TokenPolicy& policy, int layers) {
  bool saves = policy.FirstChoice() != kNoPoint;
  for (int l = 0; l < layers; ++l) saves |= policy.ChoosesPattern(Phase::kPrefill, l);
  return saves;
}

}  // namespace

void Engine::Prepare(Run& run, const DocumentCache* documents) {
  const Request& request = run.request;
  const int64_t prompt_tokens = std::ssize(request.tokens);
  ResolvedPrune resolved = ResolveFor(request, documents != nullptr);
  run.prune = MakePolicy(resolved.spec, Context(run), request.protection);
  run.spec = std::move(resolved.spec);
  run.auto_reason = std::move(resolved.reason);
  run.auto_cause = resolved.cause;
  CheckProcesses(run.prune);
  if (request.complete && documents != nullptr && run.prune.active) PreferDense(run, *documents);
  const bool compares = request.only_if_it_pays && documents != nullptr && !request.prompt_log_probs;
  if (compares && run.prune.active) PreferCheaper(run, *documents);
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
  CheckFits({.keys_values = prompt_tokens * TokenBytes(shape, backend_->cache_dtype()) + shape.StateBytes(),
             .workspace = Workspace::Bytes(shape, prompt_tokens, tile_rows_)});
  run.sequence = transformer_.NewSequence(prompt_tokens, prompt_tokens + run.wanted, *backend_);
  run.sequence.cold_options = cold_options_;
  run.sequence.trace = request.trace;
  run.workspace = TakeWorkspace();
}

void Engine::CheckProcesses(const PruneChoice& choice) const {
  if (comm_ == nullptr) return;
  if (const std::string why = SplitRefusal(*choice.policy, transformer_.config().shape.layer_count());
      !why.empty())
    throw PruneError("{}: does not go with {} processes: {}", choice.spec, comm_->size(), why);
}

void Engine::CheckSetting(std::string_view spec) {
  const ModelShape& shape = transformer_.config().shape;
  const DType cache = backend_->cache_dtype();
  for (const int64_t tokens : {int64_t{1}, context_}) {  // some methods act on long prompts only
    MethodContext context{.shape = shape,
                          .tokens = tokens,
                          .parked_bytes = ParkedBytes(shape, cache),
                          .layer_bytes = LayerBytes(shape, cache)};
    if (tokenizer_) {
      context.pieces = [] { return std::vector<std::string>(); };
      context.open_scorer = [this](const std::string& path) { return Scorer(path), TokenScores(); };
      context.open_words = [this](const std::string& path) { return WordsOf(path), WordReader(); };
      context.open_draft = [this](const std::string& path) { return DraftOf(path), Draft(); };
    }
    CheckProcesses(MakePolicy(ResolvePrune(spec, tokens, PromptStates::kDiscarded).spec, context, {}));
  }
}

void Engine::PreferDense(Run& run, const DocumentCache& documents) {
  const Request& request = run.request;
  const int64_t dense = documents.DenseTokens(request.tokens, transformer_.config().shape.layer_count(),
                                              request.documents_owner);
  if (!IsMost(dense, std::ssize(request.tokens))) return;
  run.prune = MakePolicy("none", Context(run), {});
  run.prune.reason = fmt::format("the document's read is complete: {} tokens have dense states", dense);
}

// A method is made to cost less than a dense run that begins with nothing. Beside the document cache it may
// cost more: a dense run takes over the rows of all layers up to the cache's end, and the method at most
// those below its first choice. Where the cache has no more for a dense run than for the method, the method's
// own break-even decides.
void Engine::PreferCheaper(Run& run, const DocumentCache& documents) {
  const Request& request = run.request;
  const ModelConfig& config = transformer_.config();
  const int64_t count = std::ssize(request.tokens);
  if (!SavesPrefill(*run.prune.policy, config.shape.layer_count())) return;
  const auto taken = [&](const TokenPolicy& policy) -> PlannedPrefix {
    const auto [point, rows] = documents.WouldTake(
        request.tokens, RulesOf(policy, config.shape.layer_count(), count), request.documents_owner);
    return {point, rows};
  };
  const auto work = [](const PlannedPrefix& prefix) { return prefix.rows * DepthOf(prefix.point); };
  PruneChoice dense = MakePolicy("none", Context(run), {});
  const PlannedPrefix by_dense = taken(*dense.policy);
  const PlannedPrefix by_method = taken(*run.prune.policy);
  if (work(by_dense) <= work(by_method)) return;

  const std::unique_ptr<Backend> planner = MakeBackend("reference", {.threads = 1});
  double method_flops = 0;
  const PruneChoice method = MakePolicy(run.spec, PlanContext(run, method_flops), request.protection);
  method_flops += PlanPrefill(config, count, *method.policy, by_method, *planner).prefill_flops();
  const double dense_flops = PlanPrefill(config, count, *dense.policy, by_dense, *planner).prefill_flops();
  if (dense_flops > method_flops) return;
  dense.spec = std::move(run.prune.spec);
  dense.reason = fmt::format(
      "dense costs less here: {} GFLOP with {} of {} tokens from the document cache, {} {} with {}",
      Gflop(dense_flops), by_dense.rows, count, run.spec, Gflop(method_flops), by_method.rows);
  run.prune = std::move(dense);
}

// Context() for a plan: second models are not run. `flops` gets what they would compute, except for models
// that read the text in tokens of their own, whose number is not known before.
MethodContext Engine::PlanContext(Run& run, double& flops) {
  MethodContext context = Context(run);
  const int64_t count = context.tokens;
  const ModelShape& shape = transformer_.config().shape;
  context.dropped = nullptr;
  context.first_layers = [&flops, &shape, count](int layer) {
    flops += FilterFlops(shape, count, layer);
    return PlannedScores(count);
  };
  if (!tokenizer_) return context;
  context.open_scorer = [count](const std::string&) -> TokenScores {
    return [count] { return PlannedScores(count); };
  };
  context.open_words = [pieces = context.pieces](const std::string&) -> WordReader {
    return [pieces] { return PlannedWords(pieces()); };
  };
  context.open_draft = [this, &run, &flops, count](const std::string& path) -> Draft {
    const std::shared_ptr<DraftReader> draft = DraftOf(path);
    Draft opened{.reason = draft->Refusal(run.request.tokens)};
    opened.read = [&flops, draft, count](int look_ahead, int /*pool*/) {
      flops += LookAheadFlops(draft->shape(), count, look_ahead);
      return PlannedScores(count);
    };
    return opened;
  };
  return context;
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

}  // namespace coppice
