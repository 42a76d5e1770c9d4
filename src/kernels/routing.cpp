#include "kernels/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/check.h"

namespace coppice {

namespace {

// In place, in fp32, with sums in order.
void Softmax(std::span<float> values) {
  const float most = *std::ranges::max_element(values);
  float sum = 0;
  for (float& v : values) sum += v = std::exp(v - most);
  for (float& v : values) v /= sum;
}

// Chooses among the experts of one row after the other.
class Router {
 public:
  Router(int64_t experts, const TensorView& bias, const RouterRule& rule)
      : rule_(rule),
        bias_(bias.empty() ? std::span<const float>() : bias.Row<float>(0)),
        scores_(static_cast<size_t>(experts)),
        ranked_by_(scores_.size()),
        order_(scores_.size()) {}

  void Route(std::span<const float> logits, std::span<int32_t> experts, std::span<float> weights) {
    std::ranges::copy(logits, scores_.begin());
    if (rule_.kind == RouterKind::kSoftmaxTopK) Softmax(scores_);
    if (rule_.kind == RouterKind::kSigmoidTopK) {
      for (float& s : scores_) s = 1 / (1 + std::exp(-s));
    }
    Choose(experts);
    for (size_t i = 0; i < experts.size(); ++i) weights[i] = scores_[static_cast<size_t>(experts[i])];
    if (rule_.kind == RouterKind::kTopKSoftmax) Softmax(weights);
    if (rule_.normalise) {
      // DeepSeek's sigmoids may all vanish; the sum of the best probabilities cannot.
      const float none = rule_.kind == RouterKind::kSigmoidTopK ? 1e-20f : 0.0f;
      const float sum = std::accumulate(weights.begin(), weights.end(), none);
      for (float& w : weights) w /= sum;
    }
    for (float& w : weights) w *= rule_.scale;
  }

 private:
  // The best experts, ascending.
  void Choose(std::span<int32_t> experts) {
    for (size_t e = 0; e < scores_.size(); ++e) {
      const float score = scores_[e] + (bias_.empty() ? 0 : bias_[e]);
      ranked_by_[e] = std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
    }
    std::iota(order_.begin(), order_.end(), 0);
    const auto end = order_.begin() + static_cast<std::ptrdiff_t>(experts.size());
    std::partial_sort(order_.begin(), end, order_.end(), [&](int32_t a, int32_t b) {
      const float of_a = ranked_by_[static_cast<size_t>(a)];
      const float of_b = ranked_by_[static_cast<size_t>(b)];
      return of_a > of_b || (of_a == of_b && a < b);
    });
    std::copy(order_.begin(), end, experts.begin());
    std::ranges::sort(experts);
  }

  const RouterRule& rule_;
  std::span<const float> bias_;
  std::vector<float> scores_;
  std::vector<float> ranked_by_;
  std::vector<int32_t> order_;
};

}  // namespace

void RouteRows(const TensorView& logits, const TensorView& bias, const RouterRule& rule, Routes to) {
  const auto used = static_cast<size_t>(rule.used);
  COPPICE_CHECK(rule.used >= 1 && rule.used <= logits.cols);
  COPPICE_CHECK(to.experts.size() == static_cast<size_t>(logits.rows) * used);
  COPPICE_CHECK(to.weights.size() == to.experts.size());
  COPPICE_CHECK(bias.empty() || (bias.rows == 1 && bias.cols == logits.cols));
  Router router(logits.cols, bias, rule);
  for (int64_t row = 0; row < logits.rows; ++row) {
    const size_t at = static_cast<size_t>(row) * used;
    router.Route(logits.Row<float>(row), to.experts.subspan(at, used), to.weights.subspan(at, used));
  }
}

}  // namespace coppice
