// Runs another program on bytes of strangers, within limits.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

struct ChildLimits {
  std::chrono::seconds cpu{20};
  std::chrono::milliseconds wall{60'000};
  int64_t memory_bytes = int64_t{1} << 30;  // of address space
};

enum class ChildEnd {
  kExited,    // ChildResult::code
  kKilled,    // by a signal: a limit on processor time or memory, or a fault
  kTooLong,   // ChildLimits::wall
  kDeclined,  // `take` wanted no more
};

struct ChildResult {
  ChildEnd end = ChildEnd::kExited;
  int code = 0;
  std::string errors;  // the beginning of what it wrote to stderr
};

// Runs the program `words[0]`, an absolute path, with `input` as a file at its stdin, which it may open again
// as /dev/stdin. Calls `take` with each piece of its stdout; `take` returns whether it wants more. The child
// inherits no environment and no file, writes no file, starts no process, and dies with the calling thread.
// Throws Cancelled soon after `cancelled` returns true, and Error if the program cannot be started. The child
// has ended when this returns or throws.
ChildResult RunChild(const std::vector<std::string>& words, std::string_view input, const ChildLimits& limits,
                     const std::function<bool()>& cancelled,
                     const std::function<bool(std::string_view)>& take);

}  // namespace coppice
