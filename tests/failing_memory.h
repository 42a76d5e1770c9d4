// Memory that runs out when a test says so. Replaces operator new, so one file of a test program includes it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace coppice {

inline thread_local int spared_allocations = 0;   // this many of this thread's next allocations succeed
inline thread_local int failing_allocations = 0;  // this many after them fail
inline thread_local bool has_own_memory = false;  // this thread does not notice what follows
inline std::atomic<bool> memory_is_out{false};

inline bool AllocationFails() {
  if (failing_allocations > 0) {
    if (spared_allocations > 0) {
      --spared_allocations;
      return false;
    }
    --failing_allocations;
    return true;
  }
  return memory_is_out && !has_own_memory;
}

// For all threads but the one that made it.
class NoMemoryForOthers {
 public:
  NoMemoryForOthers() {
    has_own_memory = true;
    memory_is_out = true;
  }
  ~NoMemoryForOthers() {
    memory_is_out = false;
    has_own_memory = false;
  }
  NoMemoryForOthers(const NoMemoryForOthers&) = delete;
  NoMemoryForOthers& operator=(const NoMemoryForOthers&) = delete;
};

}  // namespace coppice

[[gnu::noinline]] void* operator new(size_t size) {
  if (coppice::AllocationFails()) throw std::bad_alloc();
  if (void* p = std::malloc(size > 0 ? size : 1)) return p;
  throw std::bad_alloc();
}
// Sorts take their room by this one, and give it back by the same delete.
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return coppice::AllocationFails() ? nullptr : std::malloc(size > 0 ? size : 1);
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }
