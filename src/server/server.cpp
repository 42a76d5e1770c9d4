#include "server/server.h"

#include <boost/beast/core/string.hpp>
#include <ctime>
#include <new>

#include "base/field_error.h"
#include "engine/documents/document_folder.h"
#include "policies/registry.h"
#include "server/merged_metrics.h"
#include "server/plan_context.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;

constexpr std::chrono::milliseconds kGrace{500};

std::map<uint64_t, ClientLimit> ByHash(const std::map<std::string, ClientLimit>& limits) {
  std::map<uint64_t, ClientLimit> by_hash;
  for (const auto& [key, limit] : limits) by_hash[HashOf(key)] = limit;
  return by_hash;
}

std::vector<uint64_t> Hashes(const std::vector<std::string>& keys) {
  std::vector<uint64_t> hashes;
  for (const std::string& key : keys) hashes.push_back(HashOf(key));
  return hashes;
}

std::vector<std::string_view> MethodNames() {
  std::vector<std::string_view> names;
  for (const MethodInfo& method : Methods()) names.push_back(method.name);
  return names;
}

}  // namespace

std::shared_ptr<ClientLimits> LimitsOf(const ServerOptions& options) {
  return std::make_shared<ClientLimits>(ByHash(options.key_limits));
}

void CheckAddress(const ServerOptions& options) {
  if (options.api_keys.empty() && !IsLocal(options.http.host))
    throw FieldError("api_key", " is missing: others can reach the address {}", options.http.host);
}

Server::Server(ServerOptions options)
    : options_(std::move(options)),
      access_(options_.api_keys, options_.http.host, options_.allowed_hosts, options_.cors_origins),
      started_(std::time(nullptr)),
      limits_(options_.limits ? options_.limits : LimitsOf(options_)),
      metrics_(Hashes(options_.api_keys), MethodNames()),
      history_({.keys = std::ssize(options_.api_keys)}),
      random_(std::random_device()()) {
  // Entries belong to a key (PrefixOwner), and no router can say whose request it routes.
  if (options_.kv_events && options_.api_keys.size() > 1) {
    throw FieldError("kv_events", " goes with one API key: each key's documents serve only its own requests");
  }
  if (options_.kv_events && !options_.defaults.cache_prompt)
    throw FieldError("kv_events", " tells what requests reuse, and cache_prompt is false");
  if (options_.documents) files_ = std::make_unique<FileReader>(FindFileTools());
  if (!options_.access_log.empty())
    log_ = std::make_unique<const AccessLog>(options_.access_log, options_.log_format);
}

Server::~Server() { Stop(); }

void Server::Listen(int port) {
  HttpOptions http = options_.http;
  http.port = port;
  CheckAddress(options_);
  http_ = std::make_unique<HttpServer>(http, *this);
  listening_ = http_.get();
}

void Server::Serve(std::unique_ptr<Engine> engine) {
  if (engine->tokenizer() == nullptr)
    throw Error("{}: has no tokenizer, so it cannot be served", engine->store().path());
  CheckDefaultMethod(*engine);
  if (!options_.slot_save_path.empty()) RemoveUnfinishedPrefixFiles(options_.slot_save_path);
  engine_ = std::move(engine);
  longest_point_ = PointOf(engine_->context());
  cache_blocks_ = CacheBlocks();
  const auto run = [this](Job& job, const JobTurns& turns, JobResult& result) {
    if (job.beginning) return ReadBeginning(job, turns);
    const bool ended = RunJob(*engine_, job, turns, result, &history_);
    if (const auto& reuse = result.reuse)
      metrics_.CountReuse(job.request.documents_owner.key, reuse->cause.reason, reuse->computed_tokens());
    if (ended) CompleteDocument(job, result.answer);
    if (ended) ReadNextTurn(job, result.answer);
    return ended;
  };
  const auto decode = [this](std::span<DecodeStep* const> steps) { engine_->DecodeTogether(steps); };
  SchedulerOptions scheduling = options_.scheduler;
  // Of shorter prompts the document cache keeps nothing that a waiting job could find.
  if (engine_->documents() != nullptr) scheduling.least_shared = DocumentCacheOptions().least_new;
  scheduler_ = std::make_unique<TurnScheduler>(run, decode, metrics_, scheduling);
  if (options_.kv_events)
    options_.kv_events->Start([this](const HeldDocument& document) { return ServesLater(document); });
  ready_ = true;
}

// An invalid default is an error at the start, not with the first request. It may name files, and it may act
// on long prompts only.
void Server::CheckDefaultMethod(Engine& engine) const {
  for (const int64_t tokens : {int64_t{1}, engine.context()}) {
    const ResolvedPrune resolved = engine.ResolvePrune(options_.defaults.prune, tokens, PromptStates::kKept);
    engine.CheckProcesses(MakePolicy(resolved.spec, PlanContext(engine, tokens), {}));
  }
}

int Server::port() const { return http_->port(); }

void Server::Drain(std::chrono::milliseconds limit) {
  if (!ready_ || limit.count() <= 0) return;
  draining_ = true;
  if (http_) http_->WaitForReplies(limit);
}

bool Server::Stop() {
  const bool was_ready = ready_.exchange(false);
  // Handlers may still submit jobs, which the stopped scheduler refuses. It is destroyed after the threads
  // that use it.
  if (was_ready) scheduler_->Stop();
  if (files_) files_->Stop();
  if (options_.kv_events) options_.kv_events->Stop();
  const bool ended = !http_ || http_->Stop(kGrace);
  if (ended) scheduler_.reset();
  return ended;
}

bool Server::WriteDocuments(std::chrono::milliseconds limit) {
  DocumentCache* documents = engine_ ? engine_->documents() : nullptr;
  return documents == nullptr || documents->FlushWithin(limit);
}

const std::vector<Server::Row>& Server::Rows() {
  static const std::vector<Row> rows = {
      {"GET", "/", &Server::Page, true, false},
      {"GET", "/web/", &Server::Page, true, false},
      {"GET", "/docs", &Server::Documents, true, false},
      {"GET", "/openapi.json", &Server::Documents, true, false},
      {"GET", "/version", &Server::Documents, true, false},
      {"GET", "/health", &Server::Health, true, false},
      {"GET", "/v1/health", &Server::Health, true, false},
      {"GET", "/models", &Server::Models, true, true},
      {"GET", "/v1/models", &Server::Models, true, true},
      {"GET", "/v1/models/", &Server::Models, true, true},
      {"POST", "/models/load", &Server::ChangeModel, true, true},
      {"POST", "/models/unload", &Server::ChangeModel, true, true},
      {"GET", "/props", &Server::Props, true, true},
      {"GET", "/methods", &Server::ListMethods, true, false},
      {"GET", "/slots", &Server::Slots, true, true},
      {"POST", "/slots/", &Server::ChangeSlot, false, true},
      {"GET", "/metrics", &Server::MetricsText, true, false},
      {"GET", "/tokenizer_info", &Server::TokenizerInfo, true, true},
      {"POST", "/plan", &Server::Plan, false, true},
      {"POST", "/v1/documents/text", &Server::ReadFile, false, false},
      {"POST", "/tokenize", &Server::Tokenize, false, true},
      {"POST", "/detokenize", &Server::Detokenize, false, true},
      {"POST", "/apply-template", &Server::ApplyTemplate, false, true},
      {"POST", "/v1/completions/render", &Server::RenderPrompts, false, true},
      {"POST", "/v1/chat/completions/render", &Server::RenderMessages, false, true},
      {"POST", "/completion", &Server::NativeCompletion, false, true},
      {"POST", "/completions", &Server::NativeCompletion, false, true},
      {"POST", "/v1/completions", &Server::Completions, false, true},
      {"POST", "/chat/completions", &Server::Chat, false, true},
      {"POST", "/v1/chat/completions", &Server::Chat, false, true},
      {"POST", "/chat/completions/input_tokens", &Server::CountChatTokens, false, true},
      {"POST", "/v1/chat/completions/input_tokens", &Server::CountChatTokens, false, true},
      {"POST", "/embedding", &Server::Embeddings, false, true},
      {"POST", "/embeddings", &Server::Embeddings, false, true},
      {"POST", "/v1/embeddings", &Server::Embeddings, false, true},
      {"POST", "/v1/messages", &Server::Messages, false, true},
      {"POST", "/v1/messages/count_tokens", &Server::CountMessageTokens, false, true},
      {"POST", "/v1/responses", &Server::Responses, false, true},
  };
  return rows;
}

const Server::Row* Server::Find(const HttpRequest& head) {
  const std::string method = head.method == "HEAD" ? "GET" : head.method;
  std::string allowed;
  for (const Row& row : Rows()) {
    const std::string_view path = row.path;
    const bool matches =
        path.size() > 1 && path.ends_with('/') ? head.path.starts_with(path) : head.path == path;
    if (!matches) continue;
    if (method == row.method) return &row;
    allowed = std::string_view(row.method) == "GET" ? "GET, HEAD" : row.method;
  }
  if (!allowed.empty()) {
    throw HttpError({.status = 405,
                     .message = fmt::format("{} takes {}, not {}", head.path, allowed, head.method),
                     .allow = allowed});
  }
  throw HttpError({404, "not_found_error", "there is no such path here; docs/server.md lists them"});
}

HttpHeaders Server::HeadersFor(const HttpRequest& head) {
  HttpHeaders headers = access_.CorsHeaders(head);
  // The names under which Anthropic's clients and OpenAI's read it.
  for (const char* name : {"request-id", "x-request-id"}) headers.emplace_back(name, head.id);
  return headers;
}

std::optional<HttpReply> Server::Refuse(const HttpRequest& head) {
  HttpFault fault;
  try {
    if (auto reply = access_.Preflight(head)) {
      metrics_.CountRequest(reply->status);
      return reply;
    }
    // The page needs no key: it holds nothing secret, and asks the user for the key.
    if (!head.path.ends_with("/health") && !IsPage(head.path)) {
      if (const auto refusal = access_.Refuse(head)) throw HttpError(*refusal);
    }
    const Row& row = *Find(head);
    const std::string& encoding = head.Header("content-encoding");
    if (!encoding.empty() && encoding != "identity") {
      throw HttpError({415, "invalid_request_error",
                       fmt::format("Content-Encoding {}: send the body as it is", encoding)});
    }
    const std::string& transfer = head.Header("transfer-encoding");
    if (!transfer.empty() && !boost::beast::iequals(transfer, "chunked")) {
      throw HttpError({415, "invalid_request_error",
                       fmt::format("Transfer-Encoding {}: only chunked is taken", transfer)});
    }
    if (row.needs_model && !ready_ && !options_.is_front)
      throw HttpError({503, "unavailable_error", "Loading model"});
    if (draining_ && !row.is_quick)
      throw HttpError({503, "unavailable_error", "the server finishes its requests and ends"});
    return std::nullopt;
  } catch (const HttpError& error) {
    fault = error.fault();
  }
  metrics_.CountRequest(fault.status);
  return ErrorReply(fault, ErrorFormFor(head));
}

bool Server::IsQuick(const HttpRequest& head) { return Find(head)->is_quick; }

void Server::Log(const HttpLogEntry& entry) {
  try {
    if (log_) log_->Write(entry);
  } catch (const std::exception&) {  // no memory for the line
  }
}

void Server::Handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  const ErrorForm form = ErrorFormFor(request);
  try {
    const Row& row = *Find(request);
    if (row.needs_model && !ready_) throw HttpError({503, "unavailable_error", "the server is stopping"});
    // Enough of the hash to tell clients apart.
    if (const uint64_t client = access_.ClientOf(request); client != 0)
      exchange->Note(LogNote::Of("client", fmt::format("{:08x}", client >> 32)));
    if (!row.is_quick)
      request.admission = limits_->Admit(access_.KeyOf(request), std::chrono::system_clock::now());
    (this->*row.handler)(request, exchange);
  } catch (const HttpError& error) {
    Fail(exchange, error.fault(), form);
  } catch (const Cancelled&) {
    Fail(exchange, CancelledFault(!ready_), form);
  } catch (const nlohmann::json::exception& error) {  // a value of another type than its field has
    Fail(exchange, {400, "invalid_request_error", error.what()}, form);
  } catch (const std::bad_alloc&) {
    Fail(exchange, {503, "unavailable_error", "out of memory"}, form);
  } catch (const std::exception& error) {
    Fail(exchange, {500, "server_error", error.what()}, form);
  }
}

void Server::Answer(const ExchangePtr& exchange, const ordered_json& body) {
  metrics_.CountRequest(200);
  exchange->Reply({.status = 200, .body = DumpJson(body)});
}

void Server::Fail(const ExchangePtr& exchange, const HttpFault& fault, const ErrorForm& form) {
  metrics_.CountRequest(fault.status);
  exchange->Reply(ErrorReply(fault, form));
}

void Server::Health(const HttpRequest&, const ExchangePtr& exchange) {
  if (!ready_ && !options_.is_front) return Fail(exchange, {503, "unavailable_error", "Loading model"});
  if (draining_)
    return Fail(exchange, {503, "unavailable_error", "the server finishes its requests and ends"});
  Answer(exchange, {{"status", "ok"}});
}

// Of several keys, each sees how far its own requests are; of others' only that a slot computes, which their
// effect on its own requests tells anyway.
void Server::Slots(const HttpRequest& request, const ExchangePtr& exchange) {
  if (!options_.slots) throw HttpError({501, "not_supported_error", "slots are switched off on this server"});
  ordered_json list = ordered_json::array();
  for (const SlotState& slot : scheduler_->Slots()) {
    ordered_json item = {{"id", slot.id}, {"n_ctx", engine_->context()}, {"is_processing", slot.task >= 0}};
    if (slot.completes) item["is_completing"] = true;
    if (slot.task >= 0 && slot.client == access_.ClientOf(request)) {
      item.update({{"id_task", slot.task},
                   {"n_prompt_tokens", slot.prompt_tokens},
                   {"n_prompt_tokens_cache", slot.cached_tokens},
                   {"n_prompt_tokens_processed", slot.processed_tokens},
                   {"n_decoded", slot.decoded_tokens},
                   {"prune", slot.prune},
                   {"seconds", slot.seconds}});
    }
    list.push_back(std::move(item));
  }
  Answer(exchange, list);
}

}  // namespace coppice
