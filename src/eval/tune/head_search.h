// Finds MInference's pattern for every query head offline, as its paper does (arXiv 2407.02490, kernel-aware
// search): the candidates of a head cost the kernel the same, and the one whose attention output is nearest
// to dense attention's on a reference prompt wins.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>

#include "engine/engine.h"
#include "policies/methods/head_patterns.h"

namespace coppice {

struct HeadSearchOptions {
  // The FLOPs that a head may take: those of an A-shape of this many tokens, a fifth of them at the prompt's
  // start. The default is the paper's.
  int64_t budget = 5120;
  const std::atomic<bool>* cancelled = nullptr;
  std::function<void(double share)> progress = {};  // of the search; may be empty
};

struct HeadSearchResult {
  HeadPatterns patterns;  // `model` is empty
  // Means over the heads of all layers but the last, as shares of the squared output of dense attention: the
  // chosen patterns' error, and that of each kind with its best sizes if every head had it.
  double error = 0;
  double error_of[3] = {0, 0, 0};  // by PatternKind; infinite if no size of the kind fits the budget
  double density = 0;              // mean share of the causal pairs that the chosen patterns read
};

// Sizes and error of one candidate.
struct HeadCandidate {
  HeadPattern pattern;
  double cost = 0;   // query-key pairs, those of the estimate included, as a share of all causal pairs
  double error = 0;  // |O - O_dense|^2 / |O_dense|^2, over the rows that the pattern applies to
};

// The candidates of one query head within `budget` tokens; `head` has values. Sizes are the largest within
// the cost of the A-shape. Empty if the budget's A-shape covers the prompt.
std::vector<HeadCandidate> CandidatesOf(const AttentionInput& head, int64_t budget, Backend& be);

// Runs `tokens` densely through the model, and compares the candidates of each head with what the dense run
// attends. A prompt longer than the context keeps its first token, on which many heads spend most of their
// attention, and its end. The last layer gets the patterns of the one before it: a prefill computes its last
// row only, so nothing reads them. Throws Error if the prompt is too short for the budget or the model has
// one layer, and Cancelled.
HeadSearchResult SearchHeadPatterns(const Engine& engine, std::span<const int32_t> tokens,
                                    const HeadSearchOptions& options);

}  // namespace coppice
