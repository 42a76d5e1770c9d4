// Probabilities from logits, before anything that sampling does to them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace coppice {

struct TokenLogProb {
  int32_t id = 0;
  double value = 0;  // natural logarithm
};

// A token, and what else could have stood in its place.
struct TokenLogProbs {
  TokenLogProb token;
  std::vector<TokenLogProb> top;  // likeliest first, of equals the lower id; `token` need not be among them
};

// The logarithm of softmax over one row.
class LogSoftmax {
 public:
  explicit LogSoftmax(std::span<const float> logits);
  // Equal logits give equal values, to the bit.
  double operator()(int32_t token) const {
    return static_cast<double>(logits_[static_cast<size_t>(token)]) - highest_ - log_sum_;
  }
  // Of the likeliest token.
  double Highest() const { return -log_sum_; }
  // With the `top` likeliest tokens, fewer where the vocabulary has fewer.
  TokenLogProbs Around(int32_t token, int top) const;

 private:
  std::span<const float> logits_;
  float highest_;
  double log_sum_;
};

}  // namespace coppice
