// What a schedule may cost in quality.
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

// The share of the budget that is used: 1 is all of it, more is too much. The larger of the two where both
// are set.
double BudgetUse(const QualityBudget& budget, const Quality& quality);
bool Meets(const QualityBudget& budget, const Quality& quality);
// Whether it still can once all `samples` are answered, of which dense's scores add up to `dense_total`:
// supposing that the rest is answered as dense answers it. Answers that dense has wrong and the method right
// are not waited for.
bool CanMeet(const QualityBudget& budget, const Quality& quality, size_t samples, double dense_total);

}  // namespace coppice
