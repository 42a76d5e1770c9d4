// The server: routes over one engine.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/access.h"
#include "server/access_log.h"
#include "server/answer_form.h"
#include "server/client_limits.h"
#include "server/files/file_reader.h"
#include "server/generation_reply.h"
#include "server/http/http.h"
#include "server/kv_events.h"
#include "server/metrics.h"
#include "server/model_shelf.h"
#include "server/next_turn.h"
#include "server/parameters.h"
#include "server/request_json.h"
#include "server/scheduler.h"

namespace coppice {

struct BuildFacts {
  std::string version;
  std::string commit;  // of the source; empty: unknown
  std::string type;    // of the build
  std::string compiler;
};

struct ServerOptions {
  HttpOptions http;
  std::string alias = "coppice";                  // the model's name in answers
  std::string build;                              // the program's name and version
  BuildFacts facts;                               // of GET /version
  std::vector<std::string> api_keys;              // a request needs one of them; empty: no key is needed
  std::map<std::string, ClientLimit> key_limits;  // by API key
  std::vector<std::string> allowed_hosts;         // as in Access
  std::vector<std::string> cors_origins;
  bool slots = true;       // GET /slots
  bool metrics = true;     // GET /metrics
  bool documents = true;   // POST /v1/documents/text
  bool next_turn = true;   // read, while idle, what the next turns of chats begin with
  std::string access_log;  // a file, "-" for stderr; empty: none
  LogFormat log_format = LogFormat::kText;
  std::chrono::milliseconds ping{30'000};  // between comments of a silent stream
  SchedulerOptions scheduler;
  std::string slot_save_path;  // the folder of files for POST /slots/ID; empty: not supported
  int64_t slot_save_bytes = int64_t{16} << 30;  // of its files
  Parameters defaults;                          // for fields that a request does not send
  // It stands before the servers of several models (ModelHost), and has no model itself.
  bool is_front = false;
  std::shared_ptr<ClientLimits> limits;  // shared by servers that have the same keys; null: its own
  // Tells routers what the document cache holds; must also be the cache's listener. Null: no router is told.
  std::shared_ptr<KvEvents> kv_events;
};

// What `options.key_limits` say, to be shared by several servers.
std::shared_ptr<ClientLimits> LimitsOf(const ServerOptions& options);
// Throws Error if others can reach the address and there is no API key.
void CheckAddress(const ServerOptions& options);

class Server final : public ModelService {
 public:
  explicit Server(ServerOptions options);
  ~Server() override;  // Stop()

  // Listens on ServerOptions::http.host; until Serve() it answers that the model is loading. Throws Error if
  // the address cannot be used, or if others can reach it and there is no API key. Without this call the
  // server answers Handle() alone. Call it once.
  void Listen(int port);
  // Begins to serve requests. Throws Error for a model without a tokenizer, or if the default method does not
  // fit the model.
  void Serve(std::unique_ptr<Engine> engine);
  int port() const;  // after Listen()
  void RefuseNew() { draining_ = true; }
  // Refuses new requests, and waits until those that have begun are answered, at most for `limit`.
  void Drain(std::chrono::milliseconds limit);
  // Cancels all jobs and requests, tells their clients, and closes every connection; takes about two seconds
  // at most. Returns false if a request goes on nevertheless: destroying the server waits for it.
  bool Stop() override;
  // After Stop(): writes the document cache's entries that have no file yet. Returns false if that takes
  // longer than `limit`; destroying the server would then wait until all are written.
  bool WriteDocuments(std::chrono::milliseconds limit) override;

  HttpHeaders HeadersFor(const HttpRequest& head) override;
  std::optional<HttpReply> Refuse(const HttpRequest& head) override;
  bool IsQuick(const HttpRequest& head) override;
  void Handle(HttpRequest request, std::shared_ptr<Exchange> exchange) override;
  void Log(const HttpLogEntry& entry) override;

  using ExchangePtr = std::shared_ptr<Exchange>;
  using Handler = void (Server::*)(const HttpRequest& request, const ExchangePtr& exchange);
  struct Row {
    const char* method;
    const char* path;  // a path that ends in "/" matches everything below it; "/" matches only itself
    Handler handler;
    bool is_quick;
    bool needs_model;
  };

  static const std::vector<Row>& Rows();
  // Throws HttpError if there is no such route.
  static bool NeedsModel(const HttpRequest& head) { return Find(head)->needs_model; }

 private:
  static const Row* Find(const HttpRequest& head);
  void CheckDefaultMethod(Engine& engine) const;
  void Answer(const ExchangePtr& exchange, const nlohmann::ordered_json& body);
  void Fail(const ExchangePtr& exchange, const HttpFault& fault, const ErrorForm& form = {});

  void Health(const HttpRequest&, const ExchangePtr& exchange);
  void Slots(const HttpRequest& request, const ExchangePtr& exchange);
  // routes_model.cpp
  void Models(const HttpRequest& request, const ExchangePtr& exchange);
  void ChangeModel(const HttpRequest&, const ExchangePtr& exchange);
  void Props(const HttpRequest&, const ExchangePtr& exchange);
  void TokenizerInfo(const HttpRequest&, const ExchangePtr& exchange);
  // routes_metrics.cpp
  void MetricsText(const HttpRequest&, const ExchangePtr& exchange);
  // routes_page.cpp
  static bool IsPage(std::string_view path);
  void Page(const HttpRequest& request, const ExchangePtr& exchange);
  void ListMethods(const HttpRequest&, const ExchangePtr& exchange);
  void Documents(const HttpRequest& request, const ExchangePtr& exchange);
  // routes_plan.cpp
  void Plan(const HttpRequest& request, const ExchangePtr& exchange);
  // routes_file_text.cpp
  void ReadFile(const HttpRequest& request, const ExchangePtr& exchange);
  // routes_slots.cpp
  void ChangeSlot(const HttpRequest& request, const ExchangePtr& exchange);
  // routes_text.cpp
  void Tokenize(const HttpRequest& request, const ExchangePtr& exchange);
  void Detokenize(const HttpRequest& request, const ExchangePtr& exchange);
  void ApplyTemplate(const HttpRequest& request, const ExchangePtr& exchange);
  void RenderPrompts(const HttpRequest& request, const ExchangePtr& exchange);
  void RenderMessages(const HttpRequest& request, const ExchangePtr& exchange);
  // routes_generate.cpp
  void Completions(const HttpRequest& request, const ExchangePtr& exchange);
  void NativeCompletion(const HttpRequest& request, const ExchangePtr& exchange);
  void Chat(const HttpRequest& request, const ExchangePtr& exchange);
  void Generate(Route route, const HttpRequest& request, const ExchangePtr& exchange);
  void ScoreOnce(const std::vector<std::shared_ptr<Job>>& jobs, GenerationReply& reply);
  void Start(std::vector<std::shared_ptr<Job>> jobs, const Parameters& p, const HttpRequest& request,
             const ExchangePtr& exchange);
  PrefixOwner OwnerOf(const HttpRequest& request, const Parameters& p) const;
  std::function<void(int64_t)> TokenCounter(const HttpRequest& request);
  std::optional<ToolFormat> ToolsOf(const Parameters& p) const;  // if the answer may call functions
  // routes_embeddings.cpp
  void Embeddings(const HttpRequest& request, const ExchangePtr& exchange);
  // reuse.cpp
  LayerPoint PointOf(int64_t tokens) const;
  bool ServesLater(const HeldDocument& document) const;
  int64_t CacheBlocks() const;
  // routes_blocks.cpp
  void Messages(const HttpRequest& request, const ExchangePtr& exchange);
  void CountMessageTokens(const HttpRequest& request, const ExchangePtr& exchange);
  void CountChatTokens(const HttpRequest& request, const ExchangePtr& exchange);
  void AnswerTokens(const ChatForm& chat, const HttpRequest& request, const ExchangePtr& exchange);
  void Responses(const HttpRequest& request, const ExchangePtr& exchange);
  template <typename Reply>
  void GenerateBlocks(const ChatForm& chat, const char* prefix, const HttpRequest& request,
                      const ExchangePtr& exchange);

  // These two throw HttpError for a prompt that cannot be served, and Cancelled.
  std::shared_ptr<const EncodedPrompt> Encode(const PromptInput& input, const std::string& field,
                                              const Parameters& p, const std::atomic<bool>* cancelled) const;
  // Does not check the prompt's length.
  std::shared_ptr<const EncodedPrompt> EncodeMessages(const Parameters& p,
                                                      const std::atomic<bool>* cancelled) const;
  void CheckPrompt(const EncodedPrompt& prompt, const Parameters& p, const std::string& field) const;
  void DecidePrune(Parameters& p) const;
  std::shared_ptr<Job> MakeJob(const EncodedPrompt& prompt, const Parameters& p, const CompiledForm& form,
                               Route route, int64_t choice);
  void CompleteDocument(const Job& job, const ::coppice::Answer& answer);
  // next_turn.cpp
  std::shared_ptr<const NextTurn> NextTurnOf(const Parameters& p, const std::string& calls_id,
                                             bool empty_is_null) const;
  void ReadNextTurn(const Job& job, const ::coppice::Answer& answer);
  bool CanKeep(const Request& request) const;
  bool ReadBeginning(Job& job, const JobTurns& turns);
  std::string NewId(Route route);
  uint64_t Random();

  const Tokenizer& tokenizer() const { return *engine_->tokenizer(); }

  const ServerOptions options_;
  const Access access_;
  const int64_t started_;  // Unix time
  const std::shared_ptr<ClientLimits> limits_;
  AnswerForms forms_;
  std::unique_ptr<const AccessLog> log_;  // may be null
  Metrics metrics_;
  PromptHistory history_;
  std::unique_ptr<Engine> engine_;
  LayerPoint longest_point_;  // PointOf(the context's length)
  int64_t cache_blocks_ = 0;  // CacheBlocks()
  std::unique_ptr<Scheduler> scheduler_;
  std::atomic<bool> ready_{false};  // the four above may be read
  std::atomic<bool> draining_{false};
  std::mutex save_mutex_;  // two slots saved at once must not exceed slot_save_bytes together
  std::mutex random_mutex_;
  std::mt19937_64 random_;
  std::unique_ptr<FileReader> files_;                  // null: switched off
  std::unique_ptr<HttpServer> http_;                   // last but one: its threads use all of the above
  std::atomic<const HttpServer*> listening_{nullptr};  // http_, which its own threads must not read
};

}  // namespace coppice
