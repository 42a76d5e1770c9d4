// A run as a page of tables and figures.
#pragma once

#include <string>

#include "eval/report/report_data.h"

namespace coppice {

// One self-contained HTML file: it loads nothing, runs no script, and equal runs give equal pages.
std::string ReportPage(const ReportData& data);

struct ReportOutputs {
  std::string pictures = {};  // a folder that gets every figure as an SVG file
  std::string markdown = {};  // a file that gets the tables
};

// Reads samples.jsonl in the folder `source`, and writes results.json and report.html beside it; or reads the
// rows of a results.json, FILE.json, and writes FILE.html. Throws Error, naming the file. Returns the page's
// path.
std::string WriteReport(const std::string& source, const ReportOutputs& outputs = {});

}  // namespace coppice
