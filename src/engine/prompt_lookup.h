// Prompt lookup decoding: the tokens that followed the place where most of the text's last tokens stood
// before are proposed as its next tokens (Saxena 2023, "Prompt Lookup Decoding"; vLLM calls it n-gram
// speculation). The engine computes proposals in one step with the token before them and keeps those that it
// would have sampled, so answers do not change. It pays where answers quote the prompt.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace coppice {

class PromptLookup {
 public:
  // Proposes at most `most` tokens at a time; 0: never any.
  explicit PromptLookup(int64_t most) : most_(most), width_(most < 3 ? most : 3) {}

  // What may follow `history`, at most `room` tokens. Each call's history begins with the previous call's.
  std::vector<int32_t> Propose(std::span<const int32_t> history, int64_t room);
  // How many of the last proposals were right.
  void Learn(int64_t accepted);

  int64_t proposed() const { return proposed_; }
  int64_t accepted() const { return accepted_; }

 private:
  static constexpr int64_t kMatch = 3;  // tokens that must be equal

  struct Place {
    int64_t end = 0;    // the index behind it
    int64_t equal = 0;  // tokens before `end` that are the history's last ones
  };

  // Of the places with one key, the latest of which ends at `end`, that with the most equal tokens.
  Place Longest(std::span<const int32_t> history, int64_t end) const;

  int64_t most_;
  int64_t width_;        // tokens of the next proposal, at most
  int64_t last_ = 0;     // tokens of the last one
  int64_t misses_ = 0;   // proposals in a row of which nothing was right
  int64_t pauses_ = 0;   // calls before the next proposal
  int64_t indexed_ = 0;  // tokens of the history before which `after_` knows all places
  // By kMatch tokens: the index behind the last place where they stand.
  std::unordered_map<uint64_t, int64_t> after_;
  std::vector<int64_t>
      earlier_;  // by the index behind a place: that of the place before with its key; 0: none
  int64_t proposed_ = 0;
  int64_t accepted_ = 0;
};

}  // namespace coppice
