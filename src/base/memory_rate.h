// How fast this machine's threads read memory.
#pragma once

#include <cstdint>

#include "base/threads.h"

namespace coppice {

// Bytes per second with which all threads of the pool together read `bytes` bytes, over and over for some
// `seconds`, at least once: the median pass. Choose more bytes than the caches hold. Throws std::bad_alloc.
double MemoryReadRate(const ThreadPool& pool, int64_t bytes, double seconds);

// Several times the last cache, at least 64 MiB, at most 512 MiB; and 64 MiB where the size is unknown.
int64_t MoreThanCaches();

}  // namespace coppice
