// What a search found: settings within a budget, the nearest to it, and the frontier.
#include <algorithm>
#include <limits>

#include "eval/tune/search.h"

namespace coppice {

std::optional<double> SearchResult::BestFlops(const QualityBudget& budget) const {
  std::optional<double> best;
  for (const Candidate& c : tried) {
    if (c.verdict == Verdict::kDone && Meets(budget, c.quality) && (!best || c.flops < *best)) best = c.flops;
  }
  return best;
}

double SearchResult::KeepsAtMost(const Candidate& c) const {
  const double all = dense_score * static_cast<double>(samples);
  return all > 0 ? 1 - (c.quality.dense_score - c.quality.score) / all : 1;
}

std::vector<size_t> SearchResult::Frontier() const {
  std::vector<size_t> order, frontier;
  for (size_t i = 0; i < tried.size(); ++i) {
    if (tried[i].verdict == Verdict::kDone || tried[i].verdict == Verdict::kOver) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return tried[a].flops < tried[b].flops; });
  double most = -std::numeric_limits<double>::infinity();
  for (const size_t i : order) {
    const double keeps = KeepsAtMost(tried[i]);
    if (keeps <= most) continue;
    most = keeps;
    frontier.push_back(i);
  }
  return frontier;
}

double Candidate::mean_kl() const {
  return quality.samples == 0 ? 0 : quality.kl / static_cast<double>(quality.samples);
}

std::vector<size_t> SearchResult::WithinBudget(const std::string& method, const QualityBudget& budget) const {
  std::vector<size_t> within;
  for (size_t i = 0; i < tried.size(); ++i) {
    const Candidate& c = tried[i];
    if (c.method == method && c.verdict == Verdict::kDone && Meets(budget, c.quality)) within.push_back(i);
  }
  std::stable_sort(within.begin(), within.end(),
                   [&](size_t a, size_t b) { return tried[a].flops < tried[b].flops; });
  return within;
}

std::optional<size_t> SearchResult::Nearest(const std::string& method, const QualityBudget& budget) const {
  std::optional<size_t> nearest;
  for (size_t i = 0; i < tried.size(); ++i) {
    const Candidate& c = tried[i];
    if (c.method != method || c.verdict == Verdict::kAside || c.quality.samples == 0) continue;
    if (!nearest || BudgetUse(budget, c.quality) < BudgetUse(budget, tried[*nearest].quality)) nearest = i;
  }
  return nearest;
}

}  // namespace coppice
