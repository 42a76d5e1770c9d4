// What `coppice bench` measured or planned: rows, JSON and CSV, and tables to read.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/report.h"
#include "engine/dry_run.h"
#include "engine/engine.h"
#include "kernels/timed_backend.h"

namespace coppice::cli {

// The counted rounds of one method at one length.
struct BenchSample {
  std::string asked;  // the spec as it was given
  std::vector<double> ttft_ms;
  std::vector<double> decode_rates;
  std::vector<OpTimes> times;
  int64_t peak_bytes = 0;  // resident, the warming round included
  int64_t second = 0;      // tokens of the second question that these are; 0: of the first
  double cpu_seconds = 0;  // of the last round, in this process
  Answer last;
};

// Of a model with mixtures: experts whose weights a prefill reads, which pruning hardly lessens
// (model/ledger.h).
struct ExpertReads {
  int64_t run = 0;
  double dense = 0;  // 0: the model has none
};

// A method at a length: what was measured, beside what its FLOPs would allow. Times are medians,
// and their parts those of the rounds in the middle.
struct BenchRow {
  std::string model, type, backend, isa;
  int64_t threads = 0, rounds = 0, prompt = 0;
  std::string asked;  // as BenchSample::asked
  std::string prune;  // the same with every key written out
  bool active = false;
  int64_t second_question = 0;  // as BenchSample::second
  int64_t cached_tokens = 0;
  std::string kept;  // KeptText
  Spread ttft_ms = {};
  double tokens_per_second = 0, tflops_per_second = 0;
  double speed_up = 0;
  // The speed-up that the FLOPs would allow, and the share of it that was reached.
  double flop_bound = 0, share_of_bound = 0;
  double time_bound = 0, share_of_time_bound = 0;  // by Bounds::time_ms
  double rate_bound = 0, share_of_rate_bound = 0;  // by Bounds::rate
  std::array<double, kOpKindNames.size()> parts_ms = {};
  double other_ms = 0;
  double flops = 0, product_flops = 0, attention_flops = 0;
  double product_tflops_per_second = 0, attention_tflops_per_second = 0;
  std::string auto_reason;
  double cpu_seconds = 0;  // as BenchSample::cpu_seconds
  int64_t weights_bytes = 0, kv_bytes = 0, aux_bytes = 0, cold_bytes = 0, peak_bytes = 0;
  ExpertReads experts = {};
  std::optional<Spread> decode_tokens_per_second;  // where tokens were generated
  std::vector<ProcessWork> processes;              // of the last round; empty: one process

  double part_ms(OpKind kind) const { return parts_ms[static_cast<size_t>(kind)]; }
};

// A method at a length, planned without running it.
struct PlanRow {
  std::string model;
  int64_t prompt = 0;
  std::string asked, prune;  // as in a BenchRow
  bool active = false;
  std::string kept;
  double flops = 0, flops_dense = 0, flop_bound = 0, product_flops = 0, attention_flops = 0;
  int64_t kv_bytes = 0, kv_bytes_dense = 0, aux_bytes = 0, cold_bytes = 0;
  ExpertReads experts = {};
  std::string reason, auto_reason;
};

// `dense`: the rounds of the dense run that alternated with these.
BenchRow MakeRow(const Engine& engine, int64_t tokens, const BenchSample& sample, const BenchSample& dense);
PlanRow MakeRow(const std::string& model, int64_t tokens, const std::string& asked, const DryRun& run,
                const std::string& auto_reason);

nlohmann::ordered_json ToJson(const BenchRow& row);
nlohmann::ordered_json ToJson(const PlanRow& row);

// All rows of one program run, at least one.
std::string Tables(const std::vector<BenchRow>& rows);
std::string Tables(const std::vector<PlanRow>& rows);
// A line for each row, below the names of its values.
std::string CsvText(const nlohmann::ordered_json& rows);

}  // namespace coppice::cli
