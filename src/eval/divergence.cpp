#include "eval/divergence.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "eval/arm.h"

namespace coppice {

namespace {

Estimate MeanOf(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  if (values.empty()) return {};
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  return {mean, values.size() > 1 ? std::sqrt(squares / (n - 1) / n) : 0};
}

auto Likeliest(std::span<const float> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

}  // namespace

void PerplexitySum::Add(double nll) {
  ++tokens_;
  sum_ += nll;
  squares_ += nll * nll;
}

double PerplexitySum::nll() const { return tokens_ > 0 ? sum_ / static_cast<double>(tokens_) : 0; }

Estimate PerplexitySum::Perplexity() const {
  const double mean = nll();
  const double ppl = std::exp(mean);
  if (tokens_ < 2) return {ppl, 0};
  const auto n = static_cast<double>(tokens_);
  const double variance = std::max(squares_ / n - mean * mean, 0.0);
  return {ppl, ppl * std::sqrt(variance / (n - 1))};
}

void DivergenceSum::Add(std::span<const float> base, std::span<const float> other, int32_t token) {
  COPPICE_CHECK(base.size() == other.size());
  divergences_.push_back(Divergence(base, other));
  if (Likeliest(base) == Likeliest(other)) ++same_;
  const double log_base = LogProbability(base, token);
  const double log_other = LogProbability(other, token);
  log_ratios_.push_back(log_base - log_other);
  const double delta = std::exp(log_other) - std::exp(log_base);
  delta_squares_ += delta * delta;
}

Estimate DivergenceSum::Mean() const { return MeanOf(divergences_); }

double DivergenceSum::Quantile(double share) const {
  if (divergences_.empty()) return 0;
  std::vector<double> sorted = divergences_;
  const auto last = static_cast<double>(sorted.size() - 1);
  const auto at = sorted.begin() + static_cast<std::ptrdiff_t>(std::ceil(share * last));
  std::nth_element(sorted.begin(), at, sorted.end());
  return *at;
}

double DivergenceSum::same_top() const {
  return divergences_.empty() ? 0 : static_cast<double>(same_) / static_cast<double>(positions());
}

double DivergenceSum::DeltaP() const {
  return divergences_.empty() ? 0 : std::sqrt(delta_squares_ / static_cast<double>(positions()));
}

Estimate DivergenceSum::Ratio() const {
  const Estimate log_ratio = MeanOf(log_ratios_);
  const double ratio = std::exp(log_ratio.value);
  return {ratio, ratio * log_ratio.error};
}

}  // namespace coppice
