// Traces as files: JSON lines, a header, a line for every layer of the prefill, a line for every decode step.
// docs/trace.md describes them.
#pragma once

#include <string>

#include "trace/trace.h"

namespace coppice {

inline constexpr int kTraceVersion = 1;

// Writes line by line, so that no second copy of the trace is ever in memory. Throws Error, naming the file, where it
// cannot be written in full; what stood there before is then untouched.
void WriteTrace(const Trace& trace, const std::string& path);

// Reads what WriteTrace wrote, and trusts none of it: throws Error, naming file and line.
Trace ReadTrace(const std::string& path);

}  // namespace coppice
