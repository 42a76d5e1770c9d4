// The routes that generate: they turn a request's parameters into jobs.
#include <algorithm>
#include <ctime>
#include <map>

#include "base/field_error.h"
#include "engine/answer_reader.h"
#include "engine/chat_prompt.h"
#include "engine/thinking_rules.h"
#include "policies/registry.h"
#include "server/chat_options.h"
#include "server/server.h"

namespace coppice {

namespace {

constexpr int64_t kDefaultCompletionTokens = 16;  // OpenAI's and vLLM's

void CheckSpans(const std::vector<PositionSpan>& spans, int64_t tokens, const char* field) {
  for (const PositionSpan& span : spans) {
    if (span.end > tokens) {
      throw BadField(field, fmt::format("the span [{}, {}] ends beyond the prompt's {} tokens", span.begin,
                                        span.end, tokens));
    }
  }
}

std::vector<std::shared_ptr<Job>> Living(const std::vector<std::weak_ptr<Job>>& jobs) {
  std::vector<std::shared_ptr<Job>> living;
  for (const auto& weak : jobs) {
    if (auto job = weak.lock()) living.push_back(std::move(job));
  }
  return living;
}

void SetThinking(const EncodedPrompt& prompt, const Parameters& p, std::optional<ToolFormat> tools,
                 Job& job) {
  job.thinking = prompt.thinking;
  job.splits_thinking = p.splits_thinking;
  job.thinking_budget = ThinkingBudgetOf(p);
  if (!tools || !CallsAreMessages(*tools) || !job.thinking || !job.thinking->form.channels) return;
  // Behind the thinking the model may also call a function, or must.
  ThinkingForm& form = job.thinking->form;
  const bool must = p.tool_choice == ToolChoice::kAny || p.tool_choice == ToolChoice::kOne;
  const bool is_atem = tools == ToolFormat::kAtem;
  form.force_first = is_atem ? "<|eom|><|start|>assistant" : "<|end|><|start|>assistant";
  if (must) form.force_first += is_atem ? " to=" : " to=functions.";
  if (must) form.force = form.force_first;
}

}  // namespace

void Server::Completions(const HttpRequest& request, const ExchangePtr& exchange) {
  Generate(kCompletions, request, exchange);
}

void Server::NativeCompletion(const HttpRequest& request, const ExchangePtr& exchange) {
  Generate(kNative, request, exchange);
}

void Server::Chat(const HttpRequest& request, const ExchangePtr& exchange) {
  Generate(kChat, request, exchange);
}

void Server::Generate(Route route, const HttpRequest& request, const ExchangePtr& exchange) {
  Parameters p = ParseParameters(request.body, route, options_.defaults);
  p.owner = OwnerOf(request, p);
  DecidePrune(p);
  std::vector<std::shared_ptr<const EncodedPrompt>> prompts;
  if (route == kChat) {
    prompts.push_back(EncodeMessages(p, request.cancelled.get()));
    CheckPrompt(*prompts.back(), p, "messages");
  } else {
    for (const PromptInput& input : p.prompts) {
      prompts.push_back(Encode(input, "prompt", p, request.cancelled.get()));
    }
  }
  p.prompts.clear();
  std::vector<std::shared_ptr<const EncodedPrompt>> choices;
  for (const auto& prompt : prompts) choices.insert(choices.end(), static_cast<size_t>(p.n), prompt);

  const CompiledForm form = forms_.Compiled(p, route == kChat ? ToolsOf(p) : std::nullopt,
                                            request.cancelled.get(), prompts.front()->thinking);
  p.ignored.insert(p.ignored.end(), form.not_enforced.begin(), form.not_enforced.end());
  const std::string id = NewId(route);
  const auto next_turn = route == kChat && p.n == 1 ? NextTurnOf(p, fmt::format("{} 0", id), true) : nullptr;
  p.messages = {};
  exchange->Note(LogNote::Of("id", id));
  auto reply =
      std::make_shared<GenerationReply>(ReplyOptions{.route = route,
                                                     .id = id,
                                                     .model = options_.alias,
                                                     .build = options_.build,
                                                     .created = std::time(nullptr),
                                                     .parameters = p,
                                                     .tools = route == kChat ? ToolsOf(p) : std::nullopt,
                                                     .admission = request.admission,
                                                     .on_tokens = TokenCounter(request)},
                                        choices, tokenizer(), metrics_, exchange);
  std::vector<std::shared_ptr<Job>> jobs;
  for (size_t i = 0; i < choices.size(); ++i) {
    jobs.push_back(MakeJob(*choices[i], p, form, route, static_cast<int64_t>(i) % p.n));
    jobs.back()->next_turn = next_turn;
    jobs.back()->id = id;
    jobs.back()->events = reply->Events(static_cast<int>(i));
    jobs.back()->request.trace = reply->Recorder(static_cast<int>(i));
  }
  ScoreOnce(jobs, *reply);
  Scheduler* scheduler = scheduler_.get();
  std::vector<std::weak_ptr<Job>> siblings(jobs.begin(), jobs.end());
  reply->OnFailure([scheduler, siblings] { scheduler->Cancel(Living(siblings)); });
  Start(std::move(jobs), p, request, exchange);
}

// The log-probabilities of a prompt are computed once, by its first job. Its other jobs begin afterwards and
// compute only answers, with the bits of requests for one choice.
void Server::ScoreOnce(const std::vector<std::shared_ptr<Job>>& jobs, GenerationReply& reply) {
  std::map<int, std::vector<std::weak_ptr<Job>>> later;  // weak, because jobs own the reply
  int first = 0;
  for (int i = 0; i < static_cast<int>(jobs.size()); ++i) {
    Job& job = *jobs[static_cast<size_t>(i)];
    if (!job.request.prompt_log_probs) return;
    if (reply.ScoresPrompt(i)) {
      first = i;
      continue;
    }
    job.request.tell_prompt_log_probs = false;
    if (job.request.tokens.size() == 1) continue;  // nothing is scored
    job.is_later = true;
    later[first].push_back(jobs[static_cast<size_t>(i)]);
  }
  for (const auto& [index, waiting] : later) {
    reply.OnScored(
        index, [scheduler = scheduler_.get(), waiting = waiting] { scheduler->Release(Living(waiting)); });
  }
}

std::function<void(int64_t)> Server::TokenCounter(const HttpRequest& request) {
  return [this, key = access_.KeyOf(request)](int64_t tokens) {
    limits_->CountTokens(key, tokens, std::chrono::system_clock::now());
  };
}

std::optional<ToolFormat> Server::ToolsOf(const Parameters& p) const {
  if (p.tools->empty() || p.tool_choice == ToolChoice::kNone) return std::nullopt;
  return ToolFormatOf(ChatTemplateOf(tokenizer(), true));
}

PrefixOwner Server::OwnerOf(const HttpRequest& request, const Parameters& p) const {
  return {access_.ClientOf(request), p.cache_salt.empty() ? 0 : HashOf(p.cache_salt)};
}

// Hands the jobs of one request to the scheduler.
void Server::Start(std::vector<std::shared_ptr<Job>> jobs, const Parameters& p, const HttpRequest& request,
                   const ExchangePtr& exchange) {
  const PrefixOwner owner = OwnerOf(request, p);
  for (const auto& job : jobs) {
    job->request.documents_owner = owner;
    job->arrived = request.arrived;
  }
  // Summed before, because the scheduler takes a submitted job's tokens when the job ends; told after,
  // because a full queue refuses.
  int64_t tokens = 0;
  for (const auto& job : jobs) tokens += std::ssize(job->request.tokens);
  Scheduler* scheduler = scheduler_.get();
  scheduler->Submit(jobs);
  TokenCounter(request)(tokens);
  if (p.stream) exchange->StartPings(options_.ping);
  exchange->OnGone([scheduler, jobs = std::move(jobs)] { scheduler->Cancel(jobs); });
}

void Server::CheckPrompt(const EncodedPrompt& prompt, const Parameters& p, const std::string& field) const {
  const auto count = static_cast<int64_t>(prompt.tokens.size());
  const ModelShape& shape = engine_->model().config().shape;
  try {
    CheckTokens(prompt.tokens, engine_->model().config().shape.vocab, engine_->context());
  } catch (const FieldError& too_long) {
    throw HttpError(PromptTooLong(too_long.what(), field, count, engine_->context()));
  } catch (const Error& error) {
    throw BadField(field, error.what());
  }
  for (const TokenBias& bias : p.sampling.logit_bias) {
    if (bias.id >= shape.vocab)
      throw BadField("logit_bias", fmt::format("the vocabulary has no token {}", bias.id));
  }
  CheckSpans(p.protection.spans, count, "prune.protect");
  CheckSpans(prompt.question, count, "prune.question");
  if (p.prune_asked && p.prune != options_.defaults.prune) {
    try {
      // Checks the spec before the request waits for its turn.
      const bool kept = p.cache_prompt && engine_->documents() != nullptr;
      const ResolvedPrune resolved =
          engine_->ResolvePrune(p.prune, count, kept ? PromptStates::kKept : PromptStates::kDiscarded);
      MakePolicy(resolved.spec,
                 {.shape = shape,
                  .tokens = count,
                  .prompt = prompt.tokens,
                  .question = prompt.question,
                  .pieces = [&] { return PiecesOf(tokenizer(), prompt.tokens); }},
                 p.protection);
    } catch (const Error& error) {
      throw BadField("prune", error.what());
    }
  }
}

// Log-probabilities of a prompt need a dense prefill. A request that asks for both is refused; the server's
// default method stands aside.
void Server::DecidePrune(Parameters& p) const {
  if (!p.echo || !p.log_probs || p.prune == "none") return;
  if (p.prune_asked)
    throw BadField("prune", "echo with logprobs scores every token of the prompt: send none");
  p.prune = "none";
  p.prompt_scored_densely = true;
  p.prune_asked = true;  // so that the reply reports what the default did
}

std::shared_ptr<Job> Server::MakeJob(const EncodedPrompt& prompt, const Parameters& p,
                                     const CompiledForm& form, Route route, int64_t choice) {
  auto job = std::make_shared<Job>();
  job->slot = p.slot;
  Request& request = job->request;
  request.tokens = prompt.tokens;
  request.max_tokens = p.max_tokens.value_or(route == kCompletions ? kDefaultCompletionTokens : -1);
  request.min_tokens = p.min_tokens;
  request.ends = p.stop_token_ids;
  request.prompt_lookup = p.prompt_lookup;
  request.ignore_eos = p.ignore_eos;
  request.use_documents = p.cache_prompt;
  request.documents_hint = {.conversation = p.conversation.empty() ? 0 : HashOf(p.conversation),
                            .lifetime = p.cache_lifetime};
  request.sampling = p.sampling;
  for (const auto& [text, bias] : p.biased_texts) {
    for (const int32_t id : tokenizer().Encode(text, {.add_special = false, .parse_special = false}))
      request.sampling.logit_bias.push_back({id, bias});
  }
  if (p.sampling.dry.multiplier > 0) request.sampling.dry.breakers = TokensWith(tokenizer(), p.dry_breakers);
  // Several answers to one prompt must differ, and the same seed must reproduce each of them.
  request.sampling.seed = p.seed ? *p.seed + static_cast<uint64_t>(choice) : Random();
  request.prune = p.prune;
  request.protection = p.protection;
  request.protection.spans.insert(request.protection.spans.end(), prompt.protected_spans.begin(),
                                  prompt.protected_spans.end());
  request.protection.apart = prompt.apart;
  request.question = prompt.question;
  request.confidence = p.prune_confidence;
  request.least_confidence = p.least_confidence;
  request.complete = p.complete;
  request.only_if_it_pays = p.only_if_it_pays;
  request.top_log_probs = static_cast<int>(p.top_log_probs);
  request.prompt_log_probs = p.echo && p.log_probs;
  job->log_probs = p.log_probs;
  const auto tools = route == kChat ? ToolsOf(p) : std::nullopt;
  if (tools) job->written_tokens = ControlTokens(tokenizer(), ToolMarks(*tools));
  SetThinking(prompt, p, tools, *job);
  if (form.automaton) {
    TokenGrammar grammar{form.automaton, engine_->token_texts(), {}};
    if (prompt.thinking) grammar.marks = ThinkingGrammarMarks(tokenizer(), *prompt.thinking);
    for (const int32_t id : job->written_tokens) {
      if (std::ranges::find(grammar.marks, id, &TokenGrammar::Mark::id) == grammar.marks.end())
        grammar.marks.push_back({id, tokenizer().Piece(id, true)});
    }
    if (p.min_tokens > 0)
      throw BadField("min_tokens", "does not go with a form of the answer, or with tools");
    request.grammar = std::make_shared<const TokenGrammar>(std::move(grammar));
  }
  job->stop = p.stop;
  if (route == kChat && &ChatTemplateOf(tokenizer(), tools.has_value()) == &kChatMl)
    job->stop.push_back(kChatMlEnd);
  job->stop_token_ids = p.stop_token_ids;
  return job;
}

// After a pruned answer: lets the scheduler compute what the prefill left out. That is a dense prefill, which
// continues from the states that the pruned one left in the document cache.
void Server::CompleteDocument(const Job& job, const ::coppice::Answer& answer) {
  const Request& request = job.request;
  const DocumentCache* documents = engine_->documents();
  if (!request.complete || !answer.prune_active || !request.use_documents || documents == nullptr) return;
  const ModelShape& shape = engine_->model().config().shape;
  const LayerPoint end{shape.layer_count(), false};
  if (!documents->Fits(PrefixBytes(shape, engine_->backend().cache_dtype(), end, std::ssize(request.tokens))))
    return;
  auto rest = std::make_shared<Job>();
  rest->request.tokens = request.tokens;
  rest->request.documents_owner = request.documents_owner;
  rest->request.max_tokens = 0;
  rest->events = std::make_shared<NoEvents>();
  scheduler_->Complete(std::move(rest));
}

uint64_t Server::Random() {
  const std::lock_guard lock(random_mutex_);
  return random_();
}

std::string Server::NewId(Route route) {
  return fmt::format("{}-{:016x}", route == kChat ? "chatcmpl" : "cmpl", Random());
}

}  // namespace coppice
