// A request to an engine, and its answer.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/auto_reason.h"
#include "engine/sampler.h"
#include "kernels/timed_backend.h"
#include "model/decode_batch.h"
#include "model/ledger.h"
#include "model/log_probs.h"
#include "model/prefix.h"
#include "policies/compose.h"
#include "trace/trace.h"

namespace coppice {

// How far an answer can be trusted, measured during the run. docs/quality.md says how well each number
// predicts a wrong answer.
struct Confidence {
  // The share of the last token's attention that fell on dropped tokens, at the prefill point where it was
  // largest.
  double dropped_mass = 0;
  double first_probability = 1;  // of the likeliest first token, at temperature 1
  // Mean over the answer's tokens of the natural log-probability of the likeliest token; 0 means certainty.
  double mean_log_probability = 0;
  int64_t tokens = 0;  // in the answer, the stop token included
};

// Request::prompt_lookup at most.
inline constexpr int64_t kMostLookup = 64;
// What the programs set. With 7, questions about documents decode 1.3 to 1.5 times as fast, and a story that
// repeats nothing as fast as without (benchmarks/prompt_lookup.py).
inline constexpr int64_t kDefaultLookup = 7;

// Gets a generated token. Returns false to stop the generation.
using TokenCallback = std::function<bool(int32_t id)>;

struct TokenGrammar;

// How a request will be computed, as its answer will report it.
struct ChosenRun {
  std::string setting;      // Request::prune, or what "auto" chose
  std::string spec;         // Answer::prune_spec
  bool active = false;      // Answer::prune_active
  std::string reason;       // Answer::prune_reason
  std::string auto_reason;  // Answer::auto_reason
};

struct Request {
  std::vector<int32_t> tokens;  // the prompt
  int64_t max_tokens = -1;      // -1: until the model stops or the context is full
  // The answer's first tokens are none that end it: neither an end token of the model nor one of `ends`.
  int64_t min_tokens = 0;
  std::vector<int32_t> ends;
  bool ignore_eos = false;
  SamplingOptions sampling;
  std::string prune =
      "none";  // a method spec, as --prune takes it; "auto": the setting of the model's calibration
  Protection protection;
  // The positions of the question's tokens, as in MethodContext::question. Empty: the prompt's last tokens.
  std::vector<PositionSpan> question;
  std::vector<PositionSpan> evidence;  // as MethodContext::evidence
  bool confidence = false;             // fill Answer::confidence
  // Above 0: the engine holds back a pruned answer until the first sentence that answers has ended
  // (answer_judge.h). If the model is less sure than this at some place of it, the engine answers densely
  // instead, and reuses the states that both runs share.
  double least_confidence = 0;
  // Tokens that a decode step computes ahead at most, if the text repeats itself (prompt_lookup.h): up to
  // kMostLookup; 0: none. The answer is the same.
  int64_t prompt_lookup = 0;
  bool use_documents = true;         // read from and write to the engine's document cache, if it has one
  PrefixOwner documents_owner = {};  // the owner of these entries
  PrefixHint documents_hint = {};    // what they are worth
  // The prompt is a document's that may be complete: if the document cache has dense states of nearly all of
  // it, the answer is dense, whatever `prune` says.
  bool complete = false;
  // Where the document cache holds more for a dense run than for the method, the engine compares the FLOPs of
  // both prefills (PlanPrefill), and runs densely if that costs no more. Answer::prune_reason then says so.
  bool only_if_it_pays = false;
  // What the answer must follow; may be null. An answer behind which nothing may follow ends there. Unused
  // with `forced`.
  std::shared_ptr<const TokenGrammar> grammar;
  std::vector<int32_t> forced;  // replace the first generated tokens, whatever the model predicts
  // Gets the answer's tokens so far, and may choose the next one, whatever the model predicts; with a
  // grammar, one that it allows. May be empty.
  std::function<std::optional<int32_t>(std::span<const int32_t> answer)> force;
  // Gets the logits [vocab] from which each generated token is chosen. The first call comes after ttft_ms is
  // measured. May be empty.
  std::function<void(std::span<const float> logits)> on_logits;
  // For on_log_probs: how many of the likeliest tokens it gets beside each, and whether it also gets the
  // prompt's tokens, from the second on, before the first generated one (this needs a dense run).
  int top_log_probs = 0;
  bool prompt_log_probs = false;
  // With prompt_log_probs: whether they are computed and told. If not, the answer still has the bits of a
  // request that gets them.
  bool tell_prompt_log_probs = true;
  // Gets every sampled token, the stop token too, before on_token does. Probabilities are at temperature 1,
  // before any sampling option. May be empty.
  std::function<void(const TokenLogProbs& token)> on_log_probs;
  TokenCallback on_token;                            // may be empty
  std::function<void(double layers_done)> progress;  // of the prefill, in [0, layers]; may be empty
  // Progress of a pass that scores the prompt before the prefill: the share done. May be empty.
  std::function<void(double share)> scoring;
  const std::atomic<bool>* cancelled = nullptr;  // may be null
  std::function<void()> pause;                   // RunControl::pause, in decode too; may be empty
  // Computes a plain decode step by Engine::DecodeTogether, perhaps with steps of other requests. Empty: the
  // engine computes every step at once.
  std::function<void(DecodeStep& step)> decode;
  // Whether other requests compute at this moment. The engine then computes no tokens ahead, because rows of
  // several requests already share each pass over the weights. Empty: there are none.
  std::function<bool()> others;
  // Called every millisecond or so while the engine looks which tokens the grammar allows: nobody else gains
  // from that. May block as `pause` may. May be empty.
  std::function<void()> rest;
  // Before the prefill; once, also if a second, dense run follows (least_confidence). May be empty.
  std::function<void(const ChosenRun& chosen)> on_choice;
  std::function<void()> on_held;  // least_confidence: a first token exists, and is held back; may be empty
  std::function<void(int64_t tokens)>
      on_prefix;                   // before the prefill: tokens reused from the cache; may be empty
  TraceRecorder* trace = nullptr;  // records what happened to every token; may be null
};

struct Answer {
  std::vector<int32_t> tokens;  // the generated tokens without the stop token
  // "stop": at a token that ends answers. "complete": where the grammar ended. "length". "cancelled":
  // on_token returned false.
  std::string finish_reason;
  double ttft_ms = 0;  // from the tokenised prompt to the first sampled token, with all pruning work
  double total_ms = 0;
  double decode_tokens_per_second = 0;
  int64_t proposed = 0;    // tokens computed ahead (Request::prompt_lookup)
  int64_t accepted = 0;    // of these, those in the answer
  OpTimes prefill_times;   // within ttft_ms, if EngineOptions::time_operations is set
  std::string prune_spec;  // canonical
  bool prune_active = false;
  std::string prune_reason;                   // why a method did not act on this prompt; empty if all did
  std::vector<PositionSpan> protected_spans;  // of the prompt: no method could leave these tokens out
  std::string auto_reason;  // for "auto": which calibration chose, or why the run is dense; else empty
  AutoReason auto_cause = AutoReason::kNotAsked;  // the same, as one of a few
  std::optional<Confidence> confidence;           // if Request::confidence is set
  // Request::least_confidence led to a dense answer. The ledger then adds the pruned run to selection_flops,
  // and the times contain both runs.
  bool fell_back = false;
  Ledger ledger;

  int64_t cached_tokens() const { return ledger.cached_tokens; }
};

// These throw FieldError or Error for what the engine cannot serve.
void CheckTokens(std::span<const int32_t> prompt, int64_t vocab, int64_t context);
void CheckRequest(const Request& request, int64_t vocab, int64_t context);

}  // namespace coppice
