// Perplexity of a text, and the divergence of one model's distributions from another's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace coppice {

// A mean with its standard error.
struct Estimate {
  double value = 0;
  double error = 0;
};

class PerplexitySum {
 public:
  void Add(double nll);  // -log p of one token, natural
  int64_t tokens() const { return tokens_; }
  double nll() const;  // mean
  // exp of the mean; the error is that of the mean times the perplexity (first order), as in llama.cpp's
  // perplexity.
  Estimate Perplexity() const;

 private:
  int64_t tokens_ = 0;
  double sum_ = 0;
  double squares_ = 0;
};

// By position: KL(base || other) in nats, whether both have the same likeliest token, and the difference of
// their probabilities for the text's own token.
class DivergenceSum {
 public:
  // Logits of one position, [vocab] each, and the text's token there.
  void Add(std::span<const float> base, std::span<const float> other, int32_t token);
  int64_t positions() const { return static_cast<int64_t>(divergences_.size()); }
  Estimate Mean() const;
  // The value that this share of the positions does not exceed, in [0, 1].
  double Quantile(double share) const;
  double same_top() const;  // share of positions
  // Square root of the mean of (p_other - p_base)^2.
  double DeltaP() const;
  // Perplexity of the other over that of base.
  Estimate Ratio() const;

 private:
  std::vector<double> divergences_;
  std::vector<double> log_ratios_;  // log p_base - log p_other
  int64_t same_ = 0;
  double delta_squares_ = 0;
};

}  // namespace coppice
