// The tables of a run as Markdown, for pages such as docs/quality.md.
#pragma once

#include <string>

#include "eval/report/report_data.h"

namespace coppice {

// First the means of each method over the tasks; then task by task the scores, times to first token, FLOPs and divergences.
std::string MarkdownTables(const ReportData& data);

}  // namespace coppice
