#include "grammar/work_budget.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/limits.h"

namespace coppice {

namespace {

constexpr uint64_t kBetweenLooks = 4096;  // steps: well below a millisecond

}  // namespace

WorkBudget::WorkBudget(const std::atomic<bool>* cancelled, std::function<void()> before_large)
    : cancelled_(cancelled), before_large_(std::move(before_large)) {}

void WorkBudget::Look() {
  ThrowIfCancelled(cancelled_);
  if (work_ > most_)
    throw Error("the grammar is too large: its rules, written out, take more than {} steps to compile",
                most_);
  if (work_ > limits::kSmallGrammarWork && before_large_) std::exchange(before_large_, nullptr)();
  next_look_ = std::min(work_ + kBetweenLooks, most_ + 1);
}

}  // namespace coppice
