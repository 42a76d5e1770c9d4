// What a run did to each token, as plain data: which keys each layer keeps after prefill, and what every
// decode step revived, moved or deleted. docs/trace.md describes the file and the page made from it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coppice {

// Positions are those that keys are cached with. The token at position p is prompt token p, or `entered[p]`
// where an input selection packed the prompt; generated tokens follow at PromptPositions(), +1, ... A method
// that re-numbers keys (StreamingLLM) still reports the positions that tokens had when they were computed.

struct TraceLayer {
  std::vector<int32_t> kept = {};  // positions with keys here, in any kv head, after prefill
  std::vector<int32_t> ffn = {};   // positions whose FFN ran; in the last layer only the last position
  int64_t rows_per_head = 0;       // keys of one kv head: kept.size(), or fewer if each head keeps its own
  // The computed share of the query-key pairs that causal attention has over the layer's rows; 1 is dense.
  double density = 1;
  std::vector<float> head_density = {};  // the same per query head; empty if all heads are alike
  // By process: positions whose keys it computed here. Empty if one process prefilled.
  std::vector<std::vector<int32_t>> computed = {};
  friend bool operator==(const TraceLayer&, const TraceLayer&) = default;
};

enum class TraceEventKind {
  kRevived,    // a parked token was computed here: its keys are in this layer from this step on
  kDropped,    // this step does not attend it from this layer on; its keys stay
  kLoaded,     // its keys were read from the cold tier
  kOffloaded,  // its keys were written to the cold tier
  kEvicted,    // keys were deleted, in every kv head
};
inline constexpr std::array<std::string_view, 5> kTraceEventNames = {"revived", "dropped", "loaded",
                                                                     "offloaded", "evicted"};

struct TraceEvent {
  int layer = 0;
  TraceEventKind kind = TraceEventKind::kRevived;
  std::vector<int32_t> positions;  // ascending
  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};

// Bytes held at one moment, summed over layers.
struct TraceBytes {
  int64_t kv = 0;    // hot memory
  int64_t aux = 0;   // parked hidden states
  int64_t cold = 0;  // keys and values in the cold tier
  friend bool operator==(const TraceBytes&, const TraceBytes&) = default;
};

// One generated token that went through the model (the last one sampled never does).
struct TraceStep {
  int32_t position = 0;
  // [layers] number of keys that the token attends, itself included; the mean over heads if each chooses its
  // own
  std::vector<int64_t> attended;
  std::vector<TraceEvent> events;
  TraceBytes bytes;  // after the step
  friend bool operator==(const TraceStep&, const TraceStep&) = default;
};

struct Trace {
  std::string model;
  std::string spec;  // the method, every key written out
  std::string backend;
  int layers = 0;
  int64_t prompt_tokens = 0;
  // The bytes of every prompt token, then of every generated one. A character may be cut between two tokens.
  std::vector<std::string> tokens;
  // The prompt token of each position if an input selection packed the prompt, else empty. The first layer
  // has no keys of tokens that were left out.
  std::vector<int32_t> entered;
  std::vector<TraceLayer> prefill;  // [layers]
  TraceBytes prefill_bytes;         // at the end of prefill
  int64_t kv_bytes_dense = 0;       // what a dense run holds then
  std::vector<TraceStep> steps;
  friend bool operator==(const Trace&, const Trace&) = default;

  // Positions that the prompt takes; the first generated token has this one.
  int64_t PromptPositions() const {
    return entered.empty() ? prompt_tokens : static_cast<int64_t>(entered.size());
  }
  int64_t Positions() const {
    return PromptPositions() + static_cast<int64_t>(tokens.size()) - prompt_tokens;
  }
};

// Fills a Trace during a run. Order: BeginPrefill, Layer for layer 0, 1, ..., EndPrefill, then for each step
// BeginStep, any number of Attended and Event, EndStep. Lists need not be sorted. A call costs a copy of its
// list. A run that is not traced has no recorder.
class TraceRecorder {
 public:
  // Starts anew: a recorder holds one run. `entered` as in Trace.
  void BeginPrefill(int layers, int64_t prompt_tokens, std::vector<int32_t> entered = {});
  // Before Layer: TraceLayer::computed of the next layer.
  void Computed(std::vector<std::vector<int32_t>> by_process) { computed_ = std::move(by_process); }
  void Layer(TraceLayer layer);  // rows_per_head 0 means kept.size()
  void EndPrefill(const TraceBytes& bytes, int64_t kv_bytes_dense);

  void BeginStep(int32_t position);
  void Attended(int layer, int64_t keys);
  // Does nothing if `positions` is empty. Extends an earlier event of the step with the same layer and kind.
  void Event(int layer, TraceEventKind kind, std::span<const int32_t> positions);
  void EndStep(const TraceBytes& bytes);

  // For names and texts, which the model does not know.
  Trace& trace() { return trace_; }
  Trace Take() { return std::move(trace_); }

 private:
  Trace trace_;
  std::vector<std::vector<int32_t>> computed_;
  bool in_step_ = false;
};

}  // namespace coppice
