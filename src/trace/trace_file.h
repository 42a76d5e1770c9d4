// Traces as files: JSON lines, a header, a line for every layer of the prefill, a line for every decode step.
// docs/trace.md describes them.
#pragma once

#include <string>

#include "trace/trace.h"

namespace coppice {

inline constexpr int kTraceVersion = 1;

// Writes line by line, so that no second copy of the trace is in memory. Throws Error, naming the file, if it
// cannot be written in full; an earlier file of that name is then unchanged.
void WriteTrace(const Trace& trace, const std::string& path);

// Reads a trace, checking everything: throws Error, naming file and line.
Trace ReadTrace(const std::string& path);

}  // namespace coppice
