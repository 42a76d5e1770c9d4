// What `coppice bench` measured, as rows for machines and tables for people.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/dry_run.h"
#include "engine/engine.h"

namespace coppice::cli {

// The counted rounds of one method at one length.
struct BenchSample {
  std::vector<double> ttft_ms;
  std::vector<double> decode_rates;
  std::vector<OpTimes> times;
  int64_t peak_bytes = 0;  // resident, the warming round included
  int64_t second = 0;      // tokens of the second question that these are; 0: of the first
  Answer last;
};

// `dense`: the rounds of the dense run that alternated with these. Times are medians.
nlohmann::ordered_json BenchRow(const Engine& engine, int64_t tokens, const BenchSample& sample,
                                const BenchSample& dense);
nlohmann::ordered_json PlanRow(const std::string& model, int64_t tokens, const DryRun& run);

// All rows of one program run, at least one.
std::string BenchTables(const std::vector<nlohmann::ordered_json>& rows);
std::string PlanTable(const std::vector<nlohmann::ordered_json>& rows);
std::string CsvText(const std::vector<nlohmann::ordered_json>& rows);

}  // namespace coppice::cli
