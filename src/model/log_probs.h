// Probabilities from logits, before any sampling option applies.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace coppice {

struct TokenLogProb {
  int32_t id = 0;
  double value = 0;  // natural logarithm
};

// A token, and the likeliest tokens at its position.
struct TokenLogProbs {
  TokenLogProb token;
  std::vector<TokenLogProb> top;  // likeliest first, ties by lower id; may lack `token`
};

// The logarithm of softmax over one row.
class LogSoftmax {
 public:
  explicit LogSoftmax(std::span<const float> logits);
  // Equal logits give equal values, to the bit.
  double operator()(int32_t token) const {
    return static_cast<double>(logits_[static_cast<size_t>(token)]) - highest_ - log_sum_;
  }
  // The log-probability of the likeliest token.
  double Highest() const { return -log_sum_; }
  // `token` with the `top` likeliest tokens, or with all if the vocabulary has fewer.
  TokenLogProbs Around(int32_t token, int top) const;

 private:
  std::span<const float> logits_;
  float highest_;
  double log_sum_;
};

}  // namespace coppice
