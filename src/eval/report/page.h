// A run as a page of tables and figures.
#pragma once

#include <string>

#include "eval/report/report_data.h"

namespace coppice {

// One self-contained HTML file: nothing is fetched, no script runs, and equal runs give equal pages.
std::string ReportPage(const ReportData& data);

// Reads samples.jsonl in `folder` and writes results.json and report.html beside it; with `pictures` also every figure as
// an SVG file in that folder. Throws Error, naming the file.
void WriteReport(const std::string& folder, const std::string& pictures = "");

}  // namespace coppice
