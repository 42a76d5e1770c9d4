// Picks the next token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"

namespace coppice {

// Names, meanings and defaults as llama.cpp's; temperature 0 is greedy.
struct SamplingOptions {
  double temperature = 0.8;
  int64_t top_k = 40;           // 0: no limit
  double top_p = 0.95;          // 1: no limit
  double min_p = 0.05;          // 0: no limit
  double repeat_penalty = 1.0;  // 1: none
  int64_t repeat_last_n = 64;   // number of last tokens that the penalty covers; 0: none, -1: all
  uint64_t seed = 0;
};

// Throws Error, naming the option and the value, if a value is out of range.
void Validate(const SamplingOptions& options);

class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options);

  // logits [vocab]; `history`: the prompt and all generated tokens. Throws Error if no logit is finite. The
  // same seed, logits and history give the same token on every machine.
  int32_t Sample(std::span<const float> logits, std::span<const int32_t> history);

 private:
  SamplingOptions options_;
  Random random_;
};

}  // namespace coppice
