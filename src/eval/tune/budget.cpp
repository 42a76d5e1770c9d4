#include "eval/tune/budget.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/field_error.h"

namespace coppice {

namespace {

// Sums of scores that differ by less than this count as equal: only rounding separates them.
constexpr double kRounding = 1e-9;

bool ReadNumber(std::string_view text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(value) && value >= 0;
}

double LossUse(double allowed, double score, double dense) {
  const double loss = dense > 0 ? 1 - score / dense : 0;
  if (loss <= allowed + kRounding) return allowed > 0 ? std::max(loss, 0.0) / allowed : 0;
  return std::max(loss / std::max(allowed, 1e-3), 1 + kRounding);
}

}  // namespace

std::string QualityBudget::Text() const {
  std::string text;
  if (score_loss) text = fmt::format("{:g} % of the dense score", 100 * *score_loss);
  if (kl) text += fmt::format("{}KL {:g}", text.empty() ? "" : " and ", *kl);
  return text;
}

QualityBudget ParseBudget(std::string_view text) {
  QualityBudget budget;
  const std::string whole(text);
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    std::string_view part = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    double value = 0;
    if (part.size() > 3 && part.substr(0, 3) == "kl=" && !budget.kl && ReadNumber(part.substr(3), value)) {
      budget.kl = value;
    } else if (part.size() > 1 && part.back() == '%' && !budget.score_loss &&
               ReadNumber(part.substr(0, part.size() - 1), value) && value <= 100) {
      budget.score_loss = value / 100;
    } else {
      throw FieldError("budget",
                       " {}: '{}' is neither a share of the dense score like 1% nor a bound like kl=0.05",
                       whole, part);
    }
  }
  if (!budget.kl && !budget.score_loss)
    throw FieldError("budget", ": 1% of the dense score, kl=0.05, or both with a comma between");
  return budget;
}

double BudgetUse(const QualityBudget& budget, const Quality& quality) {
  double use = 0;
  if (budget.score_loss) use = LossUse(*budget.score_loss, quality.score, quality.dense_score);
  if (budget.kl && quality.samples > 0) {
    const double kl = quality.kl / static_cast<double>(quality.samples);
    const double of_kl = kl <= *budget.kl + kRounding ? (*budget.kl > 0 ? kl / *budget.kl : 0)
                                                      : kl / std::max(*budget.kl, 1e-6);
    use = std::max(use, of_kl);
  }
  return use;
}

bool Meets(const QualityBudget& budget, const Quality& quality) {
  const bool score =
      !budget.score_loss || quality.score >= (1 - *budget.score_loss) * quality.dense_score - kRounding;
  return score && (!budget.kl || quality.kl <= *budget.kl * static_cast<double>(quality.samples) + kRounding);
}

bool CanMeet(const QualityBudget& budget, const Quality& quality, size_t samples, double dense_total) {
  const double lost = quality.dense_score - quality.score;
  const bool score = !budget.score_loss || lost <= *budget.score_loss * dense_total + kRounding;
  return score && (!budget.kl || quality.kl <= *budget.kl * static_cast<double>(samples) + kRounding);
}

}  // namespace coppice
