// Checks for programmer errors. Input must never reach one: validate whatever comes from outside with Error
// first.
#pragma once

#include <stdexcept>

namespace coppice {

class CheckFailure : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void FailCheck(const char* condition, const char* file, int line);

}  // namespace coppice

// Enabled in every build. It guards tensor shapes at operation boundaries, where its cost is negligible.
#define COPPICE_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::coppice::FailCheck(#condition, __FILE__, __LINE__))

// For inner loops and structural invariants. Enabled only in builds without NDEBUG.
#ifdef NDEBUG
#define COPPICE_DCHECK(condition) static_cast<void>(0)
#else
#define COPPICE_DCHECK(condition) COPPICE_CHECK(condition)
#endif
