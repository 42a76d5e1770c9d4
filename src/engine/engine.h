// A loaded model that answers requests and reports what it computed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/comm.h"
#include "engine/calibration.h"
#include "engine/documents/document_cache.h"
#include "engine/draft_reader.h"
#include "engine/embedding.h"
#include "engine/request.h"
#include "engine/text_scorer.h"
#include "engine/word_classifier.h"
#include "kernels/backend.h"
#include "kernels/timed_backend.h"
#include "model/transformer.h"
#include "policies/method_info.h"
#include "text/tokenizer/tokenizer.h"

namespace coppice {

struct PruneChoice;
class TokenTexts;

struct EngineOptions {
  std::string backend = "cpu";   // or "gpu", "reference"
  int threads = 0;               // 0: all usable cores
  bool exact = false;            // fp32 products and cache instead of the backend's bf16
  bool fast = false;             // BackendOptions::fast
  int64_t context = 0;           // positions that a sequence may take; 0: what the model was trained for
  int64_t tile_rows = 768;       // rows per tile inside a layer; the result does not depend on it
  int64_t packed_bytes = 0;      // the most packed weights that later prompts reuse; no result depends on it
  ColdOptions cold = {};         // where and how offloaded keys and values are stored
  bool check_tensors = false;    // read every weight once and refuse NaN and Inf
  bool time_operations = false;  // fill Answer::prefill_times
  std::optional<std::string> chat_template = {};  // Jinja, instead of the model's own
  std::optional<DType> cache_type = {};           // of keys and values; unset: the default of BackendOptions
  std::optional<DocumentCacheOptions> documents = {};  // unset: no document cache
  // The processes that prefill together, with this one as process 0; the others run Follow (follow.h). Null,
  // or one process: this one alone. Does not go with `documents`. Must outlive the engine.
  Comm* comm = nullptr;
};

class Engine {
 public:
  // `path` is a GGUF file or a Hugging Face folder. Throws Error, naming the file and the cause.
  static std::unique_ptr<Engine> Load(const std::string& path, const EngineOptions& options);
  // The random model of a known shape ("llama-3.2-1b:bf16"), in memory (model/synthetic.h).
  static std::unique_ptr<Engine> FromShape(const std::string& shape, const EngineOptions& options);

  ~Engine();

  // Answers one request. Throws Error for a request that cannot be served, and Cancelled if the request was
  // cancelled; the engine stays usable after either.
  //
  // Several threads may be inside a call at once, but only one of them computes: a thread may enter, return
  // or leave its request's `pause`, `decode` or `rest` only while every other thread is outside or waits in
  // one of them. Each request has its own policy, sequence, sampler and workspace. The requests share the
  // backend, whose scratch memory and threads serve one operation at a time, and the second model of Scorer.
  // A request's results are the same bits whatever runs beside it; only operation times (time_operations)
  // contain those of all requests.
  Answer Generate(const Request& request);
  // Whether the next requests fill Answer::prefill_times, in an engine with EngineOptions::time_operations.
  // Waiting for each operation costs time on a device. Call it between requests.
  void TimeOperations(bool on) {
    if (timed_ != nullptr) timed_->SetTiming(on);
  }
  // Computes steps that Request::decode got from calls of Generate that wait in it.
  void DecodeTogether(std::span<DecodeStep* const> steps) { transformer_.DecodeTogether(steps); }
  // Runs `tokens` densely and shows the logits of every position but the last, a tile at a time.
  void Score(std::span<const int32_t> tokens, const LogitsVisitor& visit, const std::atomic<bool>* cancelled);
  // The text's embedding, as Pool() has it, not normalised, from a dense run (embedding.cpp). The same rules
  // for threads apply as to Generate().
  std::vector<float> Embed(std::span<const int32_t> tokens, Pooling pooling, const RunControl& control);

  // Replaces "auto" by the calibrated setting for a prompt of `prompt_tokens` tokens, or by "none"; returns
  // other specs unchanged. `form`: what the prompt asks for, where it is known (Calibrations::Resolve).
  // Thread-safe. Throws Error if the calibration beside the model cannot be used.
  ResolvedPrune ResolvePrune(std::string_view spec, int64_t prompt_tokens, PromptStates states,
                             const std::function<PromptForm()>& form = {}) {
    return calibrations_.Resolve(spec, prompt_tokens, states, form);
  }

  // Throws PruneError if several processes load this model, and the policy cannot be split over them.
  void CheckProcesses(const PruneChoice& choice) const;

  // Throws PruneError or Error for a setting that requests cannot be answered with, of any length: unknown
  // names and values, files that cannot be read, second models that do not fit, several processes. Opens
  // these files. Call it between requests.
  void CheckSetting(std::string_view spec);

  // In a process other than 0: prefills a prompt together with process 0, which called Generate.
  void Assist(const Request& request);

  const Transformer& model() const { return transformer_; }
  const TensorStore& store() const { return *store_; }
  // Null if the model's files have none.
  const Tokenizer* tokenizer() const { return tokenizer_.get(); }
  const Backend& backend() const { return *backend_; }
  // Another backend with the same settings, for passes beside the engine's own.
  std::unique_ptr<Backend> NewBackend() const;
  int64_t context() const { return context_; }
  // The vocabulary for grammars, made when it is first asked for (some 50 ms). Thread-safe. Throws Error if
  // the model has no tokenizer.
  std::shared_ptr<const TokenTexts> token_texts();
  // Null if EngineOptions::documents is unset.
  DocumentCache* documents() { return documents_.get(); }
  // Of packed weights that are kept for later prompts. Thread-safe.
  int64_t packed_bytes() const { return packed_weights_.bytes(); }

 private:
  struct Run;  // what one request computes with (engine_run.h)

  // engine_load.cpp
  Engine(std::shared_ptr<const TensorStore> store, ModelConfig config, std::unique_ptr<Tokenizer> tokenizer,
         const EngineOptions& options);
  template <typename Make>
  static std::unique_ptr<Engine> Together(const std::string& path, bool shape, const EngineOptions& options,
                                          Make&& make);
  std::shared_ptr<TextScorer> Scorer(const std::string& path);
  std::shared_ptr<DraftReader> DraftOf(const std::string& path);
  std::shared_ptr<WordClassifier> WordsOf(const std::string& path);
  // Throws Error if the backend's memory has no room for a request, also after all that is unused was freed.
  void CheckFits(const RunBytes& bytes);
  std::unique_ptr<Workspace> TakeWorkspace();
  void PutBack(std::unique_ptr<Workspace> workspace);

  Answer GenerateTrusted(const Request& request);  // trusted_answer.cpp
  // ResolvePrune for the request's prompt, by its text, too. `kept`: a document cache keeps its states.
  ResolvedPrune ResolveFor(const Request& request, bool kept);  // request_form.cpp

  // engine_prepare.cpp
  void Prepare(Run& run, const DocumentCache* documents);
  void PreferDense(Run& run, const DocumentCache& documents);
  void PreferCheaper(Run& run, const DocumentCache& documents);
  MethodContext Context(Run& run);
  MethodContext PlanContext(Run& run, double& flops);

  // engine.cpp. Runs the request once. `documents` may be null.
  Answer GenerateOnce(const Request& request, DocumentCache* documents);
  void Prefill(Run& run, DocumentCache* documents);
  void PrefillTogether(Run& run);
  void Decode(Run& run, int32_t first, Answer& answer);
  void PlainStep(Run& run, int32_t next, const Pass& pass);
  void DropProposals(Run& run);
  void Account(Run& run, Answer& answer) const;
  void NameTrace(const Request& request, const Answer& answer, Trace& trace) const;

  std::shared_ptr<const TensorStore> store_;
  std::unique_ptr<Tokenizer> tokenizer_;
  BackendOptions backend_options_;
  std::unique_ptr<Backend> backend_;
  TimedBackend* timed_ = nullptr;  // *backend_, if operations are timed
  Transformer transformer_;
  Calibrations calibrations_;
  int64_t context_;
  ColdOptions cold_options_;
  int64_t tile_rows_;
  KeptWeights packed_weights_;  // of `transformer_`; all its workspaces refer to it
  Comm* comm_ = nullptr;        // null: this process alone
  int64_t id_ = -1;             // in the commands to the other processes
  std::mutex mutex_;
  std::shared_ptr<const TokenTexts> token_texts_;
  std::vector<std::unique_ptr<Workspace>> idle_;  // of finished requests
  std::shared_ptr<TextScorer> scorer_;            // the second models that a request used last
  std::shared_ptr<DraftReader> draft_;
  std::shared_ptr<WordClassifier> words_;
  std::unique_ptr<DocumentCache> documents_;
};

}  // namespace coppice
