// How attention becomes one score per row, where a method lets its user choose: which queries ask, how heads and
// queries are pooled, what the prompt's first tokens may take, and how far a high score spreads to its neighbours.
//
//   s_i = pool over heads h and queries q of softmax_{j >= sink}(q_h . k_j / sqrt(c))_i      (1) pool: mean or maximum
//   w_i = max over |j - i| <= widen of s_j                                                  (2) positions, not rows
//
// (2) keeps a fact whole: its next digit is often not what the prompt's end looks at (docs/quality.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "policies/method_info.h"
#include "policies/policy.h"
#include "policies/spec.h"

namespace coppice {

struct RowScores {
  int64_t queries = 1;
  bool of_question = false;  // the question's last `queries` tokens ask; else the prompt's
  MassPool pool = MassPool::kSum;
  int32_t skip_sink = 0;  // keys at positions below this take no part
  int widen = 0;

  // What the layer must observe. In decode the current token asks, alone.
  Needs::Mass Need(Phase phase, std::span<const PositionSpan> question) const;
};

// The keys queries, ask, pool, skip_sink and widen, `fallback` where they are absent; and as a spec has them.
RowScores ReadRowScores(SpecReader& read, const RowScores& fallback);
std::string RowScoresText(const RowScores& scores);
// Adds their rows of `coppice methods` to a method's keys, in front of `key`.
void AddRowScoresKeys(std::string_view queries, std::string_view key, std::vector<MethodKey>& keys);

// (2) over rows at ascending positions. A NaN spreads nowhere.
std::vector<float> Widened(std::span<const float> scores, std::span<const int32_t> positions, int widen);

}  // namespace coppice
