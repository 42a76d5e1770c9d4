// The tables of a run as Markdown, for pages such as docs/quality.md.
#pragma once

#include <string>

#include "eval/report/report_data.h"

namespace coppice {

// The means of each method over the tasks, then scores, times to first token, FLOPs and divergences by task.
std::string MarkdownTables(const ReportData& data);

}  // namespace coppice
