// A loaded model, ready to answer: files in, tokens out, and an account of what was computed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/calibration.h"
#include "engine/document_cache.h"
#include "engine/sampler.h"
#include "engine/text_scorer.h"
#include "kernels/backend.h"
#include "kernels/timed_backend.h"
#include "model/log_probs.h"
#include "model/transformer.h"
#include "policies/compose.h"
#include "policies/method_info.h"
#include "text/tokenizer/tokenizer.h"

namespace coppice {

struct EngineOptions {
  std::string backend = "cpu";           // or "reference"
  int threads = 0;                       // 0: all usable cores
  bool exact = false;                    // fp32 products and cache where the backend would use bf16
  int64_t context = 0;                   // positions a sequence may take; 0: what the model was trained for
  int64_t tile_rows = 512;               // rows per tile inside a layer; the result does not depend on it
  ColdOptions cold = {};                 // where keys go that gave up their place in memory, and how
  bool check_tensors = false;            // read every weight once and refuse NaN and Inf
  bool time_operations = false;          // fill Answer::prefill_times
  std::optional<DType> cache_type = {};  // of keys and values; unset: as BackendOptions says
  std::optional<DocumentCacheOptions> documents = {};  // unset: every prompt is computed anew
};

// How far an answer can be trusted, measured on the way; docs/quality.md has what each is worth.
struct Confidence {
  // The largest share of the last token's attention that left at one point of prefill.
  double dropped_mass = 0;
  double first_probability = 1;  // of the likeliest first token, at temperature 1
  // Mean over the answer's tokens of log(probability of the likeliest one), natural: 0 is a model that is sure.
  double mean_log_probability = 0;
  int64_t tokens = 0;  // of the answer, the stop token among them
};

// Request::least_confidence where the caller leaves the choice to the engine; docs/quality.md says why this one.
inline constexpr double kDefaultLeastConfidence = 0.8;

// A token that was generated. Returning false stops the generation.
using TokenCallback = std::function<bool(int32_t id)>;

struct Request {
  std::vector<int32_t> tokens;  // the prompt
  int64_t max_tokens = -1;      // -1: until the model stops or the context is full
  bool ignore_eos = false;
  SamplingOptions sampling;
  std::string prune = "none";  // cli's --prune SPEC; "auto": what the model's calibration says
  Protection protection;
  // The question's tokens, as MethodContext::question has them, checked by Generate. Empty: the prompt's last tokens.
  std::vector<PositionSpan> question;
  bool confidence = false;  // fill Answer::confidence
  // Above 0: a pruned answer is held back for its first tokens, and where exp(mean log-probability of the likeliest
  // token) over them is below this, the request is answered densely, from the states that both runs share.
  double least_confidence = 0;
  bool use_documents =
      true;  // where the engine has a document cache: take from it, and leave something there
  std::vector<int32_t> forced;  // take the place of the first generated tokens, whatever is likely
  // What each generated token is chosen from, [vocab]; after the first token's time was taken. May be empty.
  std::function<void(std::span<const float> logits)> on_logits;
  // With on_log_probs: how many of the likeliest tokens stand beside each, and whether the prompt's tokens are
  // told too, from the second on, before anything is generated (which needs a dense run).
  int top_log_probs = 0;
  bool prompt_log_probs = false;
  // Every token that was sampled, the stop token too, before on_token; of probabilities at temperature 1, before
  // any sampling option. May be empty.
  std::function<void(const TokenLogProbs& token)> on_log_probs;
  TokenCallback on_token;                            // may be empty
  std::function<void(double layers_done)> progress;  // prefill, in [0, layers]; may be empty
  std::function<void(double share)>
      scoring;  // before it, where a second model reads the prompt; may be empty
  const std::atomic<bool>* cancelled = nullptr;  // may be null
  // Called between tiles, also while generating; see Engine::Generate. May be empty.
  std::function<void()> pause;
  std::function<void(int64_t tokens)> on_prefix;  // told before the prefill what is taken over; may be empty
  TraceRecorder* trace = nullptr;                 // may be null; filled with what happened to every token
};

struct Answer {
  std::vector<int32_t> tokens;  // generated, the stop token not among them
  std::string finish_reason;    // "stop", "length", or "cancelled" where on_token said so
  double ttft_ms = 0;  // from the tokenised prompt to the first sampled token, scoring and gathering inside
  double total_ms = 0;
  double decode_tokens_per_second = 0;
  OpTimes prefill_times;   // within ttft_ms, where EngineOptions::time_operations is set
  std::string prune_spec;  // canonical
  bool prune_active = false;
  std::string prune_reason;  // why a method stood aside; empty where none did
  std::string auto_reason;   // of "auto": the calibration that chose, or why the run is dense; else empty
  std::optional<Confidence> confidence;  // where Request::confidence asks for it
  // Whether Request::least_confidence led to a dense answer. The ledger then counts the pruned run among what chose
  // (selection_flops), and the times hold both.
  bool fell_back = false;
  Ledger ledger;

  int64_t cached_tokens() const { return ledger.cached_tokens; }
};

class Engine {
 public:
  // `path` is a GGUF file or a Hugging Face folder. Throws Error, naming the file and the cause.
  static std::unique_ptr<Engine> Load(const std::string& path, const EngineOptions& options);
  // The random model of a known shape ("llama-3.2-1b:bf16"), in memory (model/synthetic.h).
  static std::unique_ptr<Engine> FromShape(const std::string& shape, const EngineOptions& options);

  // Answers one request. Throws Error for a request that cannot be served, Cancelled where it was cancelled;
  // the engine stays usable after either.
  //
  // Several threads may each be inside a call, but one at a time computes: a caller enters, leaves and returns from
  // its request's `pause` only while every other is outside or waits in its own `pause`. What a request computes
  // with is its own (policy, sequence, sampler, workspace); what is shared and needs those turns is the backend,
  // whose scratch memory and threads serve one operation at a time, and the scorer's place below. The results of a
  // request are the same bits whoever takes turns with it. Only operation times (time_operations) count everybody's.
  Answer Generate(const Request& request);
  // Shows the logits of every position of `tokens` but the last, densely, a tile at a time.
  void Score(std::span<const int32_t> tokens, const LogitsVisitor& visit, const std::atomic<bool>* cancelled);

  // What a --prune spec means for a prompt of `prompt_tokens` tokens: auto becomes a setting or "none".
  // Thread-safe. Throws Error where the calibration beside the model cannot be used.
  ResolvedPrune ResolvePrune(std::string_view spec, int64_t prompt_tokens) {
    return calibrations_.Resolve(spec, prompt_tokens);
  }

  const Transformer& model() const { return transformer_; }
  const TensorStore& store() const { return *store_; }
  // Null where the model's files have none.
  const Tokenizer* tokenizer() const { return tokenizer_.get(); }
  const Backend& backend() const { return *backend_; }
  int64_t context() const { return context_; }
  // Null where EngineOptions::documents is unset.
  DocumentCache* documents() { return documents_.get(); }

 private:
  Engine(std::shared_ptr<const TensorStore> store, ModelConfig config, std::unique_ptr<Tokenizer> tokenizer,
         const EngineOptions& options);
  struct Run;
  // One run of the request, which takes states from `documents` and leaves some there; it may be null.
  // `active`: told before the prefill whether some method acts; may be null.
  Answer GenerateOnce(const Request& request, DocumentCache* documents, bool* active = nullptr);
  Answer GenerateTrusted(const Request& request);  // trusted_answer.cpp
  void CheckRequest(const Request& request) const;
  void CheckTokens(std::span<const int32_t> tokens) const;
  void Prefill(const Request& request, TokenPolicy& policy, SequenceState& sequence, Workspace& workspace,
               Tensor& logits);
  void PrefillRest(const Request& request, DocumentCache* documents, Run& run);
  void Decode(const Request& request, Run& run, Answer& answer);
  void Account(const Request& request, Run& run, Answer& answer) const;
  void NameTrace(const Request& request, const Answer& answer, Trace& trace) const;
  MethodContext Context(const Request& request, Run& run);
  std::shared_ptr<TextScorer> Scorer(const std::string& path);
  std::unique_ptr<Workspace> TakeWorkspace();
  void PutBack(std::unique_ptr<Workspace> workspace);

  std::shared_ptr<const TensorStore> store_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Backend> backend_;
  const TimedBackend* timed_ = nullptr;  // *backend_, where operations are timed
  Transformer transformer_;
  Calibrations calibrations_;
  int64_t context_;
  ColdOptions cold_options_;
  int64_t tile_rows_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> idle_;  // of finished requests; one each for those that run
  std::shared_ptr<TextScorer> scorer_;            // the last that a request named
  std::unique_ptr<DocumentCache> documents_;
};

}  // namespace coppice
