// The budget of one rendering: work, live memory, and bytes of output.
//
// A template comes from a model file, so it is untrusted input: none of its loops, products or nested lists
// may decide alone how long the engine computes or how much memory it takes. Work is counted in bytes
// touched, and a statement counts as kUnitsPerStep bytes. The maximum, limits::kMaxTemplateSteps statements
// or about half a gigabyte of string work, takes a second or two.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/limits.h"

namespace coppice::jinja {

// An error in a template. The interpreter or the parser adds the line and turns it into an Error.
class Fault : public std::runtime_error {
 public:
  template <typename... Args>
  explicit Fault(fmt::format_string<Args...> format, Args&&... args)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)) {}
};

// The rendering needs more than its budget.
class LimitFault : public Fault {
 public:
  using Fault::Fault;
};

class Budget {
 public:
  static constexpr size_t kUnitsPerStep = 512;
  static constexpr size_t kUnitsPerItem = 64;  // per expression, or per list element visited
  static constexpr size_t kMaxWork = kUnitsPerStep * static_cast<size_t>(limits::kMaxTemplateSteps);
  static constexpr size_t kMaxMemory = static_cast<size_t>(limits::kMaxTemplateMemoryBytes);

  // `cancelled` may be null. Work() then throws Cancelled once it is set.
  explicit Budget(const std::atomic<bool>* cancelled = nullptr) : cancelled_(cancelled) {}

  void Work(size_t units) {
    ThrowIfCancelled(cancelled_);
    if (units > kMaxWork - work_) {
      throw LimitFault("the template takes more than {} steps", limits::kMaxTemplateSteps);
    }
    work_ += units;
  }
  void Step() { Work(kUnitsPerStep); }

  // Throws Fault, before anything is allocated, if `bytes` more do not fit. Callers must not multiply counts
  // themselves; FitsTimes does it without overflow.
  void Fits(size_t bytes) const {
    if (bytes > kMaxMemory - live_)
      throw LimitFault("the template needs more than {} bytes of memory", kMaxMemory);
  }
  void FitsTimes(size_t count, size_t bytes_each) const {
    if (bytes_each != 0 && count > kMaxMemory / bytes_each) Fits(kMaxMemory + 1);
    Fits(count * bytes_each);
  }
  void Take(size_t bytes) {
    Fits(bytes);
    live_ += bytes;
  }
  void Give(size_t bytes) noexcept { live_ -= bytes; }

 private:
  const std::atomic<bool>* cancelled_;
  size_t work_ = 0;
  size_t live_ = 0;
};

// The share of one object in the budget, returned when the object is destroyed. Literals of the template
// belong to no rendering: their budget is null.
class Charge {
 public:
  Charge(Budget* budget, size_t bytes) : budget_(budget), bytes_(bytes) {
    if (budget_ != nullptr) budget_->Take(bytes_);
  }
  ~Charge() {
    if (budget_ != nullptr) budget_->Give(bytes_);
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;

 private:
  Budget* budget_;
  size_t bytes_;
};

// A string that grows. The budget holds its whole allocation, and while it moves to a larger one both.
class ChargedText {
 public:
  explicit ChargedText(Budget& budget) : budget_(budget) {}
  ~ChargedText() { budget_.Give(charged_); }
  ChargedText(const ChargedText&) = delete;
  ChargedText& operator=(const ChargedText&) = delete;

  void Append(std::string_view text) {
    Reserve(text.size());
    text_.append(text);
  }
  void Fill(size_t count, char c) {
    Reserve(count);
    text_.append(count, c);
  }
  size_t size() const { return text_.size(); }
  // The budget no longer holds what it returns.
  std::string Take() {
    budget_.Give(std::exchange(charged_, 0));
    return std::exchange(text_, {});
  }

 private:
  static constexpr size_t kMaxGrowth = 8 << 20;

  void Reserve(size_t more) {
    budget_.Fits(more);  // so the sum does not overflow
    const size_t needed = text_.size() + more;
    if (needed <= text_.capacity()) return;
    const size_t larger = std::max(needed, text_.capacity() + std::min(text_.capacity(), kMaxGrowth));
    budget_.Take(larger);
    charged_ += larger;
    text_.reserve(larger);
    budget_.Give(charged_ - larger);
    charged_ = larger;
  }

  Budget& budget_;
  std::string text_;
  size_t charged_ = 0;
};

// Builds a string and counts the work.
class TextWriter {
 public:
  explicit TextWriter(Budget& budget) : budget_(budget), out_(budget) {}
  void Append(std::string_view text) {
    budget_.Work(text.size() + 1);
    out_.Append(text);
  }
  void Fill(size_t count, char c) {
    budget_.Work(count);
    out_.Fill(count, c);
  }
  Budget& budget() { return budget_; }
  std::string Finish() { return out_.Take(); }

 private:
  Budget& budget_;
  ChargedText out_;
};

}  // namespace coppice::jinja
