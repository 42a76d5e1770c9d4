// The results of a `coppice eval` run: per sample and arm (samples.jsonl), and summed up (results.json).
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "eval/intervals.h"
#include "eval/trace_sums.h"
#include "kernels/timed_backend.h"

namespace coppice {

// Milliseconds of the prefill by kind of operation, in the order of kOpKindNames.
struct PartTimes {
  std::array<double, kOpKindNames.size()> ms = {};
};

// One sample in one arm: dense ("none"), or a method. An optional field is absent if it does not apply to the
// sample or was not recorded. A multiple-choice sample takes one request per choice: times and FLOPs are
// means over its requests, the other fields describe the last one.
struct SampleResult {
  std::string prune;                        // as requested
  std::optional<double> nll;                // of a continuation, in nats
  std::optional<int64_t> scored_tokens;     // the number of tokens in nll
  std::optional<double> score, score_norm;  // score_norm: by likelihood per character
  std::vector<double> log_likelihoods;      // of the choices
  std::optional<std::string> text;          // the answer
  std::optional<double> kl;                 // mean divergence from dense, in nats
  std::string spec;                         // every key written out
  bool active = false;                      // false: dense, or a method that stood aside
  std::string reason;                       // why it stood aside
  std::string auto_reason;                  // which setting `auto` chose, and why
  std::optional<double> prompt_tokens;      // a mean, like times
  std::optional<int64_t> generated_tokens;
  std::string finish_reason;
  std::optional<double> ttft_ms, total_ms, decode_tokens_per_second;
  std::optional<double> flops, flops_dense;                              // of the prefill
  std::optional<Confidence> confidence;                                  // of samples with one request
  std::vector<double> kept_per_layer, ffn_per_layer, density_per_layer;  // shares of the prompt's rows
  std::vector<PlaceRow> kept_by_place;
  std::vector<PlaceRow> ffn_by_place;  // of FFNs; empty if every row that a layer holds runs its FFN
  TokenUse used_by_step;
  std::optional<PartTimes> parts_ms;
  std::optional<int64_t> kv_bytes, kv_bytes_dense, aux_bytes, cold_bytes;
  std::optional<int64_t> peak_held_bytes, peak_memory_bytes;
};

// A line of samples.jsonl: a sample in every arm.
struct SampleRecord {
  std::string task = {};
  int64_t length = 0;  // 0: the text's own
  std::string id = {};
  std::string metric = {};
  std::string prompt = {};           // a hash of the sample
  std::optional<double> depth = {};  // where the answer lies in the prompt, from 0 to 1
  std::vector<std::string> references = {};
  std::string question = {};                             // of samples that a judge may see
  std::string cutter = {};                               // of Chinese words, where the metric counts them
  std::vector<std::vector<double>> attention_mass = {};  // [layers - 1][kMassPoints], of the dense run
  std::vector<SampleResult> arms = {};
};

// Scores of the samples whose answers lie at one depth of the prompt.
struct DepthScore {
  double depth = NAN;
  double score = NAN;  // percent
  int64_t n = 0;
};

// A row of results.json: a task at a length in one arm. A score is a percentage, or the perplexity of a
// perplexity task. Times are medians over samples, shares and bytes are means. A field is NaN, or an empty
// list, if no sample has it.
struct ResultRow {
  std::string task;
  int64_t length = 0;
  std::string prune;
  std::string metric;
  double score = NAN, score_error = NAN;
  Interval score_interval = {NAN, NAN};  // 95 %
  double score_norm = NAN;
  double win_rate = NAN;          // percent: how often a judge prefers the answers (judge/judge.h)
  std::vector<int64_t> verdicts;  // the judge's: wins, ties, losses, and answers without a verdict
  std::optional<int64_t> n;       // samples
  double ttft_ms = NAN;
  double speed_up = NAN;        // the median over samples of dense's TTFT over the arm's
  double total_speed_up = NAN;  // the same of the whole answer
  double flops = NAN;           // of the prefill
  double flops_ratio = NAN, kl = NAN;
  std::optional<int64_t> active;  // samples in which the method did not stand aside
  std::string spec, reason, auto_reason;
  double total_ms = NAN, decode_tokens_per_second = NAN, prompt_tokens = NAN, generated_tokens = NAN;
  double kv_bytes = NAN, kv_bytes_dense = NAN, aux_bytes = NAN, cold_bytes = NAN;
  double peak_held_bytes = NAN, peak_memory_bytes = NAN;
  std::vector<double> kept_per_layer, ffn_per_layer, density_per_layer;
  std::optional<PartTimes> parts_ms;
  std::vector<std::vector<double>> dropped_by_place;  // [layers][kPlaces]; empty where nothing is missing
  // [layers - 1][kPlaces]: the share of all tokens that do not run a layer's FFN; empty where none skips only
  // the FFN.
  std::vector<std::vector<double>> ffn_skipped_by_place;
  TokenUse used_by_step;
  std::vector<std::vector<double>> attention_mass;  // [layers - 1][kMassPoints], of the dense arm
  std::vector<DepthScore> by_depth;

  // The method was run and stood aside in every sample.
  bool StoodAside() const { return prune != "none" && active == 0; }
};

// One sentence for each method that stood aside in a whole task: its rows there are those of the dense model.
std::vector<std::string> AsideNotes(std::span<const ResultRow> rows);

nlohmann::ordered_json ToJson(const SampleResult& result);
nlohmann::ordered_json ToJson(const SampleRecord& record);
// Throws Error where `json` is no record of a sample, naming what is wrong.
SampleRecord RecordFromJson(const nlohmann::ordered_json& json);

nlohmann::ordered_json ToJson(const ResultRow& row);
// The rows of a list that name a task and an arm; fields of another kind than the struct's count as not
// given.
std::vector<ResultRow> RowsFromJson(const nlohmann::ordered_json& list);

}  // namespace coppice
