// The rows of a report, from the samples that are done.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace coppice {

// One row for each task, length and method that the records hold, in their order: {"task", "length", "prune", "metric",
// "score", "score_norm", "n", "ttft_ms", "speed_up", "flops_ratio", "kl", ...}. Scores are percentages, those of
// perplexity what they are; times are medians, speed_up the median of dense's time over the method's, sample by sample;
// shares and bytes are means. What no record has is null.
nlohmann::ordered_json Summarize(const std::vector<nlohmann::ordered_json>& records);

// results.json: a row to a line. Throws Error, naming the file.
void WriteRows(const nlohmann::ordered_json& rows, const std::string& path);

}  // namespace coppice
