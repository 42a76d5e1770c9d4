// Sums up the samples that are done into the rows of results.json.
#pragma once

#include <string>
#include <vector>

#include "eval/results.h"

namespace coppice {

// A row for each task, length and arm of the records, in their order.
std::vector<ResultRow> Summarize(const std::vector<SampleRecord>& records);

// Writes results.json: a row to a line. Throws Error, naming the file.
void WriteRows(const std::vector<ResultRow>& rows, const std::string& path);

}  // namespace coppice
