// Picks the next token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "engine/dry_penalty.h"

namespace coppice {

class TokenFilter;

struct TokenBias {
  int32_t id = 0;
  double bias = 0;  // added to the logit; -infinity: the token never comes
};

// Names, meanings and defaults as llama.cpp's; temperature 0 is greedy. Presence and frequency count
// generated tokens only, as in OpenAI's and vLLM's servers.
struct SamplingOptions {
  double temperature = 0.8;
  int64_t top_k = 40;            // 0: no limit
  double top_p = 0.95;           // 1: no limit
  double min_p = 0.05;           // 0: no limit
  double repeat_penalty = 1.0;   // 1: none
  int64_t repeat_last_n = 64;    // number of last tokens that the penalty covers; 0: none, -1: all
  double presence_penalty = 0;   // subtracted from the logit of a token that was generated before
  double frequency_penalty = 0;  // the same, times how often it was
  double typical_p = 1;          // locally typical sampling (arXiv 2202.00666); 1: no limit
  double top_n_sigma = -1;       // logits this many standard deviations below the best; <= 0: no limit
  double xtc_probability = 0;    // of removing all but the last token above xtc_threshold
  double xtc_threshold = 0.1;    // above 0.5 there is nothing to remove
  DryOptions dry = {};
  std::vector<TokenBias> logit_bias = {};
  uint64_t seed = 0;
};

// Throws Error, naming the option and the value, if a value is out of range.
void Validate(const SamplingOptions& options);

// A token that may be drawn.
struct TokenCandidate {
  int32_t id;
  float logit;
  double weight = 0;  // exp(logit - best)
};

class Sampler {
 public:
  // `prompt_tokens`: how many tokens at the beginning of each history are the prompt's.
  explicit Sampler(const SamplingOptions& options, int64_t prompt_tokens = 0);

  // logits [vocab]; `history`: the prompt and all generated tokens. With a filter, which may be null, the
  // other options act on the tokens that it allows; the ids in `banned`, ascending, never come. Throws Error
  // if no logit is finite, or if logit_bias, `banned` and the filter leave no token. The same seed, logits
  // and history give the same token on every machine.
  int32_t Sample(std::span<const float> logits, std::span<const int32_t> history,
                 TokenFilter* filter = nullptr, std::span<const int32_t> banned = {});

 private:
  int64_t prompt_tokens_;
  SamplingOptions options_;
  Random random_;
  // Of the last token, kept for its memory: megabytes for a large vocabulary, whose pages the system would
  // hand out anew for each token.
  std::vector<TokenCandidate> candidates_;
};

}  // namespace coppice
