// What one request computes with, for the parts of the engine.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/prompt_lookup.h"
#include "engine/sampler.h"
#include "grammar/token_filter.h"
#include "model/log_probs.h"
#include "model/split.h"
#include "policies/registry.h"

namespace coppice {

struct Engine::Run {
  explicit Run(const Request& r)
      : request(r), lookup(r.prompt_lookup), sampler(r.sampling, std::ssize(r.tokens)), history(r.tokens) {
    if (r.grammar && r.forced.empty()) filter.emplace(r.grammar, r.rest);
  }

  // For passes that score the prompt. Every process computes such a pass whole, unless it can be split.
  RunControl ScoringControl() {
    RunControl control{{}, request.cancelled, request.pause};
    if (split) control = split->control();
    control.progress = request.scoring;
    return control;
  }
  std::span<const float> last_logits() const { return logits.view().Row<float>(accepted); }
  // The token that follows `history`.
  int32_t NextToken() {
    const size_t index = history.size() - request.tokens.size();
    const bool may_end = std::ssize(history) - std::ssize(request.tokens) >= request.min_tokens;
    std::optional<int32_t> forced;
    if (index < request.forced.size()) {
      forced = request.forced[index];
    } else if (request.force) {
      forced = request.force(std::span(history).subspan(request.tokens.size()));
      if (forced && filter && !filter->Allows(*forced)) forced.reset();
    }
    const int32_t id = forced ? *forced
                              : sampler.Sample(last_logits(), history, filter ? &*filter : nullptr,
                                               may_end ? std::span<const int32_t>() : ends);
    if (request.confidence) NoteProbability(LogSoftmax(last_logits()).Highest());
    return id;
  }

  void NoteProbability(double log_probability) {
    if (confidence.tokens == 0) confidence.first_probability = std::exp(log_probability);
    const auto n = static_cast<double>(confidence.tokens++);
    confidence.mean_log_probability += (log_probability - confidence.mean_log_probability) / (n + 1);
  }

  const Request& request;
  PruneChoice prune;
  std::string auto_reason;
  AutoReason auto_cause = AutoReason::kNotAsked;
  SequenceState sequence;
  std::unique_ptr<Workspace> workspace;
  Tensor logits;  // [1 + proposals, vocab], of the last step
  PromptLookup lookup;
  std::vector<int32_t> ahead;  // the tokens behind the first of the last step: proposals
  int64_t accepted = 0;        // of these, those that the text goes on with
  Sampler sampler;
  std::optional<TokenFilter> filter;
  std::vector<int32_t> history;       // the prompt and the generated tokens
  std::vector<int32_t> ends;          // ascending: the tokens that Request::min_tokens puts off
  int64_t wanted = 0;                 // tokens to generate, at most
  int64_t decoded = 0;                // decode steps
  double selection_flops = 0;         // of passes that chose tokens
  std::string spec;                   // as it was resolved
  std::optional<Split> split;         // if several processes prefill
  std::vector<DroppedShare> dropped;  // if the request asks for confidence
  Confidence confidence;
};

}  // namespace coppice
