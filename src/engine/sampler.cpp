#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "base/field_error.h"

namespace coppice {

namespace {

struct Candidate {
  int32_t id;
  float logit;
  double weight = 0;  // exp(logit - best)
};

bool Better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

void Require(bool ok, const char* field, double value, const char* range) {
  if (!ok) throw FieldError(field, " = {} is not {}", value, range);
}

}  // namespace

void Validate(const SamplingOptions& o) {
  Require(o.temperature >= 0 && std::isfinite(o.temperature), "temperature", o.temperature,
          "a number from 0");
  Require(o.top_k >= 0, "top_k", static_cast<double>(o.top_k), "a whole number from 0");
  Require(o.top_p > 0 && o.top_p <= 1, "top_p", o.top_p, "above 0 and at most 1");
  Require(o.min_p >= 0 && o.min_p <= 1, "min_p", o.min_p, "from 0 to 1");
  Require(o.repeat_penalty > 0 && std::isfinite(o.repeat_penalty), "repeat_penalty", o.repeat_penalty,
          "above 0");
  Require(o.repeat_last_n >= -1, "repeat_last_n", static_cast<double>(o.repeat_last_n),
          "a whole number from -1");
}

Sampler::Sampler(const SamplingOptions& options) : options_(options), random_(options.seed) {}

int32_t Sampler::Sample(std::span<const float> logits, std::span<const int32_t> history) {
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isfinite(logits[i])) candidates.push_back({static_cast<int32_t>(i), logits[i]});
  }
  if (candidates.empty()) {
    throw Error("no logit is finite: the weights hold NaN or Inf, or overflow (check_tensors tells which)");
  }
  if (options_.repeat_penalty != 1 && options_.repeat_last_n != 0) {
    const size_t span = options_.repeat_last_n < 0
                            ? history.size()
                            : std::min(history.size(), static_cast<size_t>(options_.repeat_last_n));
    const std::unordered_set<int32_t> recent(history.end() - static_cast<std::ptrdiff_t>(span),
                                             history.end());
    for (Candidate& c : candidates) {
      if (recent.count(c.id) == 0) continue;
      const auto penalty = static_cast<float>(options_.repeat_penalty);
      c.logit = c.logit > 0 ? c.logit / penalty : c.logit * penalty;
    }
  }
  if (options_.temperature == 0) return std::min_element(candidates.begin(), candidates.end(), Better)->id;

  size_t keep = candidates.size();
  if (options_.top_k > 0) keep = std::min(keep, static_cast<size_t>(options_.top_k));
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(keep),
                    candidates.end(), Better);
  candidates.resize(keep);
  // top-p and min-p use probabilities at temperature 1, and temperature is applied last, as in llama.cpp's
  // chain.
  double sum = 0;
  for (Candidate& c : candidates)
    sum += c.weight = std::exp(static_cast<double>(c.logit - candidates.front().logit));
  double mass = 0;
  keep = 0;
  while (keep < candidates.size() && (keep == 0 || mass < options_.top_p * sum))
    mass += candidates[keep++].weight;
  while (keep > 1 && candidates[keep - 1].weight < options_.min_p) --keep;
  candidates.resize(keep);

  sum = 0;
  for (Candidate& c : candidates) {
    c.weight = std::exp(static_cast<double>(c.logit - candidates.front().logit) / options_.temperature);
    sum += c.weight;
  }
  double ticket = random_.Uniform() * sum;
  for (const Candidate& c : candidates) {
    ticket -= c.weight;
    if (ticket < 0) return c.id;
  }
  return candidates.back().id;
}

}  // namespace coppice
