// How much work one grammar may take, from its text to its states.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/limits.h"

namespace coppice {

// Of one compilation, over all of its rules. Counts steps that take some tens of nanoseconds and some tens of
// bytes each, so that a limit of steps is a limit of time and memory.
class WorkBudget {
 public:
  // `cancelled` may be null. `before_large`, which may be empty, is called once, before the first step beyond
  // limits::kSmallGrammarWork; it may wait, and may throw.
  explicit WorkBudget(const std::atomic<bool>* cancelled = nullptr, std::function<void()> before_large = {});
  // Of `most` steps, below limits::kMaxGrammarWork.
  explicit WorkBudget(uint64_t most) : most_(most) {}

  // Throws Error beyond the most steps, and Cancelled soon after the flag is set.
  void Spend(uint64_t steps = 1) {
    work_ += steps;
    if (work_ >= next_look_) Look();
  }
  uint64_t work() const { return work_; }

 private:
  void Look();

  const std::atomic<bool>* cancelled_ = nullptr;
  std::function<void()> before_large_;
  uint64_t most_ = limits::kMaxGrammarWork;
  uint64_t work_ = 0;
  uint64_t next_look_ = 0;
};

}  // namespace coppice
