// The peak resident memory of this process.
#pragma once

#include <cstdint>

namespace coppice {

// Bytes, measured since the last ResetPeakMemory(), or since the process started where the system cannot
// reset. Pages of mapped files count once they are read. 0 if the system does not report it.
int64_t PeakMemoryBytes();

// Restarts the measurement. Returns whether the system supports that (Linux: clear_refs, proc(5)).
bool ResetPeakMemory();

}  // namespace coppice
