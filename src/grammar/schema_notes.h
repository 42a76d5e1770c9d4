// What becomes of keywords that a grammar cannot keep.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/limits.h"

namespace coppice {

class SchemaNotes {
 public:
  // Null: such a keyword is an error.
  explicit SchemaNotes(std::vector<std::string>* dropped, int64_t most_repeats = limits::kMaxGrammarRepeats)
      : dropped_(dropped), most_repeats_(most_repeats) {}

  // Notes that `keyword` is not enforced. Throws Error with `why` if it must be.
  void Drop(const std::string& keyword, const std::string& why) {
    if (dropped_ == nullptr) throw Error("{}", why);
    if (std::ranges::find(*dropped_, keyword) == dropped_->end() && dropped_->size() < kMost)
      dropped_->push_back(keyword);
  }
  bool may_drop() const { return dropped_ != nullptr; }
  // Larger numbers of items, members and characters are not kept.
  int64_t most_repeats() const { return most_repeats_; }

 private:
  static constexpr size_t kMost = 32;
  std::vector<std::string>* dropped_;
  int64_t most_repeats_;
};

}  // namespace coppice
