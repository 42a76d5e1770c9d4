#include "server/metrics.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/kv_blocks.h"

namespace coppice {

namespace {

void Line(std::string& out, std::string_view name, std::string_view type, std::string_view help,
          double value) {
  out += fmt::format("# HELP coppice_{0} {1}\n# TYPE coppice_{0} {2}\ncoppice_{0} {3}\n", name, help, type,
                     value);
}

// Of the keys and values that a dense prefill would have.
double KeptShare(const Ledger& ledger) {
  double rows = 0;
  for (const LayerCounts& layer : ledger.layers()) {
    rows += static_cast<double>(layer.taken_over + layer.kv_rows);
  }
  return rows / (static_cast<double>(ledger.prompt_tokens()) * static_cast<double>(ledger.layers().size()));
}

double UsageOf(const Gauges& gauges) {
  if (gauges.sequence_room <= 0) return 0;
  return static_cast<double>(gauges.sequence_tokens) / static_cast<double>(gauges.sequence_room);
}

// A label's value: the format escapes three characters.
std::string LabelText(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? "\\n" : std::string(1, c);
  }
  return out;
}

// The gauges that routers read, under vLLM's names and with its labels. Usage counts what sequences hold, as
// it does there. Routers take the blocks for the size of the prefix cache, which is the document cache here.
std::string RouterGauges(const Gauges& gauges) {
  const std::string labels = fmt::format("engine=\"0\",model_name=\"{}\"", LabelText(gauges.model));
  std::string out;
  const auto line = [&](std::string_view name, std::string_view help, double value) {
    out += fmt::format("# HELP vllm:{0} {1}\n# TYPE vllm:{0} gauge\nvllm:{0}{{{2}}} {3}\n", name, help,
                       labels, value);
  };
  line("num_requests_running", "As coppice_requests_processing.", static_cast<double>(gauges.processing));
  line("num_requests_waiting", "As coppice_requests_deferred.", static_cast<double>(gauges.waiting));
  line("kv_cache_usage_perc", "As coppice_sequence_tokens_usage_ratio; 1 is full.", UsageOf(gauges));
  out += fmt::format(
      "# HELP vllm:cache_config_info The document cache in blocks of tokens.\n"
      "# TYPE vllm:cache_config_info gauge\n"
      "vllm:cache_config_info{{block_size=\"{}\",{},num_gpu_blocks=\"{}\"}} 1\n",
      kBlockTokens, labels, gauges.cache_blocks);
  return out;
}

}  // namespace

void Histogram::Add(double value) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  ++counts_[static_cast<size_t>(bucket)];
  sum_ += value;
}

std::string Histogram::Text(std::string_view name, std::string_view help) const {
  std::string out = fmt::format("# HELP coppice_{0} {1}\n# TYPE coppice_{0} histogram\n", name, help);
  int64_t total = 0;
  for (size_t i = 0; i < bounds_.size(); ++i) {
    total += counts_[i];
    out += fmt::format("coppice_{}_bucket{{le=\"{}\"}} {}\n", name, bounds_[i], total);
  }
  total += counts_.back();
  return out +
         fmt::format("coppice_{0}_bucket{{le=\"+Inf\"}} {1}\ncoppice_{0}_sum {2}\ncoppice_{0}_count {1}\n",
                     name, total, sum_);
}

void Metrics::CountAnswer(const Answer& answer, int64_t prompt_tokens, int64_t sampled,
                          double queued_seconds) {
  const std::lock_guard lock(mutex_);
  prompt_tokens_ += prompt_tokens;
  cached_tokens_ += answer.cached_tokens();
  prompt_seconds_ += answer.ttft_ms / 1000;
  predicted_tokens_ += sampled;
  predicted_seconds_ += (answer.total_ms - answer.ttft_ms) / 1000;
  first_token_.Add(queued_seconds + answer.ttft_ms / 1000);
  queued_.Add(queued_seconds);
  if (answer.prune_active) kept_.Add(KeptShare(answer.ledger));
}

void Metrics::CountReuse(ReuseReason reason, int64_t computed) {
  const std::lock_guard lock(mutex_);
  Reuse& reuse = reuse_[static_cast<size_t>(reason)];
  ++reuse.prompts;
  reuse.computed += computed;
}

void Metrics::CountTexts(int64_t tokens) {
  const std::lock_guard lock(mutex_);
  embedded_tokens_ += tokens;
}

void Metrics::CountCancelled(int64_t jobs) {
  const std::lock_guard lock(mutex_);
  cancelled_ += jobs;
}

void Metrics::CountCompleted() {
  const std::lock_guard lock(mutex_);
  ++completed_;
}

void Metrics::CountRequest(int status) {
  const std::lock_guard lock(mutex_);
  ++requests_[status];
}

// With the mutex held.
std::string Metrics::ReuseText() const {
  const auto by_reason = [this](std::string_view name, std::string_view help, int64_t Reuse::*member) {
    std::string out = fmt::format("# HELP coppice_{0} {1}\n# TYPE coppice_{0} counter\n", name, help);
    for (size_t i = 0; i < reuse_.size(); ++i)
      out += fmt::format("coppice_{}{{reason=\"{}\"}} {}\n", name, kReuseReasons[i], reuse_[i].*member);
    return out;
  };
  return by_reason("prompts_total", "Prompts, by why they reused as much as they did.", &Reuse::prompts) +
         by_reason("prompt_tokens_computed_total", "Those of their tokens that were not reused.",
                   &Reuse::computed);
}

std::string Metrics::Text(const Gauges& gauges) const {
  const std::lock_guard lock(mutex_);
  std::string out;
  const auto count = [](int64_t n) { return static_cast<double>(n); };
  Line(out, "prompt_tokens_total", "counter", "Prompt tokens of finished answers.", count(prompt_tokens_));
  Line(out, "prompt_tokens_cached_total", "counter", "Those of them whose beginning the document cache knew.",
       count(cached_tokens_));
  Line(out, "prompt_seconds_total", "counter", "Time from computing a prompt's start to its first token.",
       prompt_seconds_);
  Line(out, "tokens_predicted_total", "counter", "Tokens generated.", count(predicted_tokens_));
  Line(out, "embedding_tokens_total", "counter", "Tokens of texts whose embeddings were asked for.",
       count(embedded_tokens_));
  Line(out, "tokens_predicted_seconds_total", "counter", "Time spent generating after the first token.",
       predicted_seconds_);
  Line(out, "sequences_cancelled_total", "counter", "Sequences that ended because the client left.",
       count(cancelled_));
  Line(out, "requests_processing", "gauge", "Sequences that are computed now.", count(gauges.processing));
  Line(out, "sequence_tokens", "gauge", "Tokens read or generated by the sequences that have started.",
       count(gauges.sequence_tokens));
  Line(out, "sequence_tokens_usage_ratio", "gauge", "The same over slots times context.", UsageOf(gauges));
  Line(out, "requests_deferred", "gauge", "Sequences that wait.", count(gauges.waiting));
  Line(out, "connections", "gauge", "Open connections.", count(gauges.connections));
  Line(out, "documents", "gauge", "Entries of the document cache.", count(gauges.documents));
  Line(out, "documents_memory_bytes", "gauge", "Memory that they take.", count(gauges.documents_memory));
  Line(out, "documents_disk_bytes", "gauge", "Bytes of their files.", count(gauges.documents_disk));
  Line(out, "documents_memory_blocks", "gauge",
       "Blocks of 16 tokens that the document cache can hold in memory.", count(gauges.cache_blocks));
  Line(out, "packed_weights_bytes", "gauge", "Memory of packed weights that are kept for later prompts.",
       count(gauges.packed_weights));
  Line(out, "documents_incomplete", "gauge", "Pruned documents whose read will be completed.",
       count(gauges.incomplete));
  Line(out, "documents_completed_total", "counter", "Documents whose read was completed.", count(completed_));
  Line(out, "documents_errors_total", "counter",
       "Entries that could not be written to, or read from, a file.", count(gauges.documents_errors));
  out +=
      "# HELP coppice_http_requests_total Requests by the status of their answer.\n"
      "# TYPE coppice_http_requests_total counter\n";
  for (const auto& [status, number] : requests_) {
    out += fmt::format("coppice_http_requests_total{{status=\"{}\"}} {}\n", status, number);
  }
  out += ReuseText();
  out += RouterGauges(gauges);
  out += first_token_.Text("time_to_first_token_seconds", "From a request's arrival to its first token.");
  out += queued_.Text("queue_seconds", "From a request's arrival to the start of its computation.");
  return out + kept_.Text("prefill_kept_tokens_ratio",
                          "Share of the dense keys and values that pruned prefills have.");
}

}  // namespace coppice
