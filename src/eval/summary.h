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
// Reads what WriteRows writes. Throws Error, naming the file.
std::vector<ResultRow> ReadResults(const std::string& path);

// Gives `rows`, summed up from the samples of `folder`, the judge's verdicts that its results.json has. The
// samples do not have them, and only a judge could make them again. A file that is missing or cannot be read
// has none.
void KeepVerdicts(const std::string& folder, std::vector<ResultRow>& rows);

}  // namespace coppice
