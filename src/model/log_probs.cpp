#include "model/log_probs.h"

#include <algorithm>
#include <cmath>

namespace coppice {

LogSoftmax::LogSoftmax(std::span<const float> logits)
    : logits_(logits), highest_(*std::max_element(logits.begin(), logits.end())) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - highest_);
  log_sum_ = std::log(sum);
}

TokenLogProbs LogSoftmax::Around(int32_t token, int top) const {
  TokenLogProbs result{{token, (*this)(token)}, {}};
  const auto better = [this](int32_t a, int32_t b) {
    const float x = logits_[static_cast<size_t>(a)];
    const float y = logits_[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  // A heap of the best tokens so far with the worst of them in front takes one pass and no copy of the row.
  std::vector<int32_t> best;
  const auto wanted = static_cast<size_t>(std::max(top, 0));
  for (size_t i = 0; wanted > 0 && i < logits_.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (best.size() == wanted) {
      if (!better(id, best.front())) continue;
      std::pop_heap(best.begin(), best.end(), better);
      best.pop_back();
    }
    best.push_back(id);
    std::push_heap(best.begin(), best.end(), better);
  }
  std::sort_heap(best.begin(), best.end(), better);
  for (const int32_t id : best) result.top.push_back({id, (*this)(id)});
  return result;
}

}  // namespace coppice
