#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "base/field_error.h"
#include "grammar/token_filter.h"

namespace coppice {

namespace {

using Candidate = TokenCandidate;

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
  Require(std::abs(o.presence_penalty) <= 2, "presence_penalty", o.presence_penalty, "from -2 to 2");
  Require(std::abs(o.frequency_penalty) <= 2, "frequency_penalty", o.frequency_penalty, "from -2 to 2");
  Require(o.typical_p > 0 && o.typical_p <= 1, "typical_p", o.typical_p, "above 0 and at most 1");
  Require(o.dry.multiplier >= 0 && std::isfinite(o.dry.multiplier), "dry_multiplier", o.dry.multiplier,
          "a number from 0");
  Require(o.dry.base >= 1 && std::isfinite(o.dry.base), "dry_base", o.dry.base, "a number from 1");
  Require(o.dry.allowed_length >= 1, "dry_allowed_length", static_cast<double>(o.dry.allowed_length),
          "a whole number from 1");
  Require(o.dry.last_n >= -1, "dry_penalty_last_n", static_cast<double>(o.dry.last_n),
          "a whole number from -1");
  Require(std::isfinite(o.top_n_sigma), "top_n_sigma", o.top_n_sigma, "a number");
  Require(o.xtc_probability >= 0 && o.xtc_probability <= 1, "xtc_probability", o.xtc_probability,
          "from 0 to 1");
  Require(o.xtc_threshold >= 0 && o.xtc_threshold <= 1, "xtc_threshold", o.xtc_threshold, "from 0 to 1");
  for (const TokenBias& bias : o.logit_bias) {
    Require(!std::isnan(bias.bias) && bias.bias < std::numeric_limits<double>::infinity(), "logit_bias",
            bias.bias, "a number or -infinity");
  }
}

namespace {

using CandidateList = std::vector<Candidate>;

// The number of neighbouring logits that KeepBest represents by their maximum.
constexpr size_t kBlock = 64;

// -infinity if none is finite. `block` has at most kBlock logits.
float LargestOf(std::span<const float> block) {
  constexpr float kMost = std::numeric_limits<float>::max();
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  float values[kBlock];
  std::fill(std::copy(block.begin(), block.end(), values), values + kBlock, kNone);
  for (float& v : values) v = v <= kMost ? v : kNone;  // NaN is not
  for (size_t half = kBlock / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) values[i] = values[i] < values[i + half] ? values[i + half] : values[i];
  }
  return values[0];
}

// Keeps the `count` best of the finite logits, and perhaps more, in the order of their ids. If as many blocks
// have a logit of `least` or above, so do as many tokens: what is below cannot be among the best. Candidates
// for all of a vocabulary of 128,256 would be 2 MiB: 0.35 ms a token instead of 0.07.
void KeepBest(std::span<const float> logits, size_t count, CandidateList& candidates) {
  const auto block = [&](size_t begin) {
    return logits.subspan(begin, std::min(kBlock, logits.size() - begin));
  };
  std::vector<float> largest;
  largest.reserve(logits.size() / kBlock + 1);
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) largest.push_back(LargestOf(block(begin)));
  float least = -std::numeric_limits<float>::infinity();
  if (count < largest.size()) {
    std::vector<float> sorted = largest;
    const auto last = sorted.begin() + static_cast<std::ptrdiff_t>(count) - 1;
    std::nth_element(sorted.begin(), last, sorted.end(), std::greater<>());
    least = *last;
  }
  candidates.clear();
  for (size_t b = 0; b < largest.size(); ++b) {
    if (largest[b] < least) continue;
    const std::span<const float> some = block(b * kBlock);
    for (size_t i = 0; i < some.size(); ++i) {
      if (some[i] >= least && std::isfinite(some[i]))
        candidates.push_back({static_cast<int32_t>(b * kBlock + i), some[i]});
    }
  }
}

// How many of the best logits decide what is drawn, if `banned` tokens are taken off; 0: perhaps all.
size_t BestNeeded(const SamplingOptions& o, const TokenFilter* filter, size_t banned) {
  const bool changes_logits = !o.logit_bias.empty() || o.repeat_penalty != 1 || o.presence_penalty != 0 ||
                              o.frequency_penalty != 0 || o.dry.multiplier != 0;
  if (changes_logits || filter != nullptr) return 0;
  if (o.temperature == 0) return 1 + banned;
  return o.top_k == 0 || o.top_n_sigma > 0 ? 0 : static_cast<size_t>(o.top_k) + banned;
}

void KeepFinite(std::span<const float> logits, CandidateList& candidates) {
  candidates.clear();
  candidates.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isfinite(logits[i])) candidates.push_back({static_cast<int32_t>(i), logits[i]});
  }
}

void ApplyBias(std::span<const TokenBias> biases, CandidateList& candidates) {
  for (const TokenBias& bias : biases) {  // candidates are still in order of their ids
    const auto at = std::lower_bound(candidates.begin(), candidates.end(), bias.id,
                                     [](const Candidate& c, int32_t id) { return c.id < id; });
    if (at == candidates.end() || at->id != bias.id) continue;
    if (std::isinf(bias.bias)) {
      candidates.erase(at);
    } else {
      at->logit += static_cast<float>(bias.bias);
    }
  }
  if (candidates.empty()) throw Error("logit_bias bans every token");
}

void Ban(std::span<const int32_t> banned, CandidateList& candidates) {
  if (banned.empty()) return;
  std::erase_if(candidates, [&](const Candidate& c) { return std::ranges::binary_search(banned, c.id); });
  if (candidates.empty()) throw Error("every token is banned");
}

void PenalizeRepeats(const SamplingOptions& o, std::span<const int32_t> history, CandidateList& candidates) {
  if (o.repeat_penalty == 1 || o.repeat_last_n == 0) return;
  const size_t span =
      o.repeat_last_n < 0 ? history.size() : std::min(history.size(), static_cast<size_t>(o.repeat_last_n));
  const std::unordered_set<int32_t> recent(history.end() - static_cast<std::ptrdiff_t>(span), history.end());
  const auto penalty = static_cast<float>(o.repeat_penalty);
  for (Candidate& c : candidates) {
    if (recent.count(c.id) == 0) continue;
    c.logit = c.logit > 0 ? c.logit / penalty : c.logit * penalty;
  }
}

void PenalizeGenerated(const SamplingOptions& o, std::span<const int32_t> generated,
                       CandidateList& candidates) {
  if (o.presence_penalty == 0 && o.frequency_penalty == 0) return;
  std::unordered_map<int32_t, int> counts;
  for (const int32_t id : generated) ++counts[id];
  for (Candidate& c : candidates) {
    const auto count = counts.find(c.id);
    if (count != counts.end())
      c.logit -= static_cast<float>(o.presence_penalty + o.frequency_penalty * count->second);
  }
}

void PenalizeRepetitions(const DryOptions& dry, std::span<const int32_t> history, CandidateList& candidates) {
  const std::unordered_map<int32_t, double> penalties = DryPenalties(dry, history);
  if (penalties.empty()) return;
  for (Candidate& c : candidates) {
    const auto found = penalties.find(c.id);
    if (found != penalties.end()) c.logit -= static_cast<float>(found->second);
  }
}

// A look at one token costs a microsecond and the whole vocabulary up to some milliseconds, and most of the
// best tokens of a model that was told the form are allowed. So it tries as many of the best as the options
// can keep.
constexpr size_t kMostTried = 1024;

void KeepAllowed(const SamplingOptions& o, TokenFilter& filter, CandidateList& candidates) {
  const bool greedy = o.temperature == 0;
  if (greedy) {
    const Candidate best = *std::min_element(candidates.begin(), candidates.end(), Better);
    if (filter.Allows(best.id)) {
      candidates = {best};
      return;
    }
  }
  // top_n_sigma looks at all tokens.
  const size_t wanted = greedy ? 1 : o.top_n_sigma > 0 ? 0 : static_cast<size_t>(o.top_k);
  const size_t tried = std::min(4 * wanted + 64, candidates.size());
  if (wanted > 0 && tried <= kMostTried) {
    std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(tried),
                      candidates.end(), Better);
    CandidateList allowed;
    for (size_t i = 0; i < tried && allowed.size() < wanted; ++i) {
      if (filter.Allows(candidates[i].id)) allowed.push_back(candidates[i]);
    }
    if (allowed.size() == wanted) {
      candidates.assign(allowed.begin(), allowed.end());
      return;
    }
  }
  const std::vector<uint8_t>& mask = filter.Mask();
  std::erase_if(candidates, [&](const Candidate& c) {
    const auto id = static_cast<size_t>(c.id);
    return id >= mask.size() || mask[id] == 0;
  });
  if (candidates.empty()) throw Error("no token of the vocabulary continues the grammar");
}

// These keep at least one candidate. CutTopK sorts, the best first; those after it keep that order.

// Keeps logits within `sigmas` standard deviations of the best (arXiv 2411.07641).
void CutTopSigma(double sigmas, CandidateList& candidates) {
  if (sigmas <= 0) return;
  double mean = 0;
  double best = candidates.front().logit;
  for (const Candidate& c : candidates) {
    mean += c.logit / static_cast<double>(candidates.size());
    best = std::max(best, static_cast<double>(c.logit));
  }
  double variance = 0;
  for (const Candidate& c : candidates)
    variance += (c.logit - mean) * (c.logit - mean) / static_cast<double>(candidates.size());
  const double least = best - sigmas * std::sqrt(variance);
  std::erase_if(candidates, [&](const Candidate& c) { return c.logit < least; });
}

void CutTopK(int64_t top_k, CandidateList& candidates) {
  size_t keep = candidates.size();
  if (top_k > 0) keep = std::min(keep, static_cast<size_t>(top_k));
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(keep),
                    candidates.end(), Better);
  candidates.resize(keep);
}

// Sets the weights at temperature 1 and returns their sum.
double Weigh(CandidateList& candidates) {
  double sum = 0;
  for (Candidate& c : candidates)
    sum += c.weight = std::exp(static_cast<double>(c.logit - candidates.front().logit));
  return sum;
}

// Keeps the tokens whose information is closest to the entropy, as many as hold typical_p of the probability.
void CutTypical(double typical_p, CandidateList& candidates) {
  if (typical_p >= 1) return;
  const double sum = Weigh(candidates);
  double entropy = 0;
  for (const Candidate& c : candidates) {
    if (c.weight > 0) entropy -= c.weight / sum * std::log(c.weight / sum);
  }
  const auto distance = [&](const Candidate& c) { return std::abs(-std::log(c.weight / sum) - entropy); };
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const Candidate& a, const Candidate& b) { return distance(a) < distance(b); });
  double mass = 0;
  size_t keep = 0;
  while (keep < candidates.size() && (keep == 0 || mass < typical_p * sum)) mass += candidates[keep++].weight;
  candidates.resize(keep);
  std::sort(candidates.begin(), candidates.end(), Better);
}

void CutTopPMinP(const SamplingOptions& o, CandidateList& candidates) {
  const double sum = Weigh(candidates);
  double mass = 0;
  size_t keep = 0;
  while (keep < candidates.size() && (keep == 0 || mass < o.top_p * sum)) mass += candidates[keep++].weight;
  while (keep > 1 && candidates[keep - 1].weight < o.min_p) --keep;
  candidates.resize(keep);
}

// Exclude top choices: of the tokens whose probability is at least the threshold only the least likely stays.
void CutTopChoices(const SamplingOptions& o, Random& random, CandidateList& candidates) {
  if (o.xtc_probability <= 0 || random.Uniform() >= o.xtc_probability) return;
  const double sum = Weigh(candidates);
  size_t above = 0;
  while (above < candidates.size() && candidates[above].weight >= o.xtc_threshold * sum) ++above;
  if (above >= 2)
    candidates.erase(candidates.begin(), candidates.begin() + static_cast<ptrdiff_t>(above) - 1);
}

int32_t Draw(double temperature, Random& random, CandidateList& candidates) {
  double sum = 0;
  for (Candidate& c : candidates) {
    c.weight = std::exp(static_cast<double>(c.logit - candidates.front().logit) / temperature);
    sum += c.weight;
  }
  double ticket = random.Uniform() * sum;
  for (const Candidate& c : candidates) {
    ticket -= c.weight;
    if (ticket < 0) return c.id;
  }
  return candidates.back().id;
}

}  // namespace

Sampler::Sampler(const SamplingOptions& options, int64_t prompt_tokens)
    : prompt_tokens_(prompt_tokens), options_(options), random_(options.seed) {}

// The order of llama.cpp's chain: top-p, min-p and the others use probabilities at temperature 1, and
// temperature is applied last.
int32_t Sampler::Sample(std::span<const float> logits, std::span<const int32_t> history, TokenFilter* filter,
                        std::span<const int32_t> banned) {
  const SamplingOptions& o = options_;
  CandidateList& candidates = candidates_;
  if (const size_t needed = BestNeeded(o, filter, banned.size())) {
    KeepBest(logits, needed, candidates);
  } else {
    KeepFinite(logits, candidates);
  }
  if (candidates.empty())
    throw Error("no logit is finite: the weights hold NaN or Inf, or overflow (check_tensors tells which)");
  Ban(banned, candidates);
  ApplyBias(o.logit_bias, candidates);
  PenalizeRepeats(o, history, candidates);
  const auto prompt = std::min(history.size(), static_cast<size_t>(prompt_tokens_));
  PenalizeGenerated(o, history.subspan(prompt), candidates);
  PenalizeRepetitions(o.dry, history, candidates);
  if (filter != nullptr) KeepAllowed(o, *filter, candidates);
  if (o.temperature == 0) return std::min_element(candidates.begin(), candidates.end(), Better)->id;
  CutTopSigma(o.top_n_sigma, candidates);
  CutTopK(o.top_k, candidates);
  CutTypical(o.typical_p, candidates);
  CutTopPMinP(o, candidates);
  CutTopChoices(o, random_, candidates);
  return Draw(o.temperature, random_, candidates);
}

}  // namespace coppice
