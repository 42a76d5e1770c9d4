// The loss of quality that a setting may cost.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace coppice {

struct QualityBudget {
  std::optional<double> score_loss;  // at most this share of the dense score
  std::optional<double> kl;          // at most this mean divergence from dense, in nats

  std::string Text() const;  // "1 % of the dense score", "KL 0.05", or both
  friend bool operator==(const QualityBudget&, const QualityBudget&) = default;
};

// "1%", "kl=0.05", or both with a comma between, which must then both hold. Throws Error, quoting what is
// wrong.
QualityBudget ParseBudget(std::string_view text);

// Sums over the samples that a spec has answered, beside dense's of the same samples.
struct Quality {
  size_t samples = 0;
  double score = 0;  // sums
  double dense_score = 0;
  double kl = 0;
};

// The used share of the budget; above 1 it is exceeded. The larger of the two if both are set.
double BudgetUse(const QualityBudget& budget, const Quality& quality);
bool Meets(const QualityBudget& budget, const Quality& quality);
// Whether the budget can still hold once all `samples` are answered, whose dense scores add up to
// `dense_total`: assumes that the remaining samples score as dense does, not better.
bool CanMeet(const QualityBudget& budget, const Quality& quality, size_t samples, double dense_total);

}  // namespace coppice
