// The most memory that this process held resident at once.
#pragma once

#include <cstdint>

namespace coppice {

// Since the last ResetPeakMemory(), or since the start where the system resets nothing. Pages of mapped files
// count as soon as they were read. 0 where the system does not say.
int64_t PeakMemoryBytes();

// Begins anew. Returns whether the system did so (Linux: clear_refs, proc(5)).
bool ResetPeakMemory();

}  // namespace coppice
