// Checks for programmer errors. Nothing that comes from outside may reach one: validate input with Error
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

// Always on: it guards tensor shapes at operation boundaries, which cost nothing beside the operation itself.
#define COPPICE_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::coppice::FailCheck(#condition, __FILE__, __LINE__))

// For inner loops and structural invariants: only in builds without NDEBUG.
#ifdef NDEBUG
#define COPPICE_DCHECK(condition) static_cast<void>(0)
#else
#define COPPICE_DCHECK(condition) COPPICE_CHECK(condition)
#endif
