// How attention becomes one score per row, where a method lets its user choose: which queries ask, how heads
// and queries are pooled, what the prompt's first tokens may take, over how many layers scores add up, and
// how far a high score spreads to its neighbours and over its sentence.
//
//   a_i = pool over heads h and queries q of softmax_{j >= sink}(q_h . k_j / sqrt(c))_i   (1) mean or maximum
//   s_i = sum of a_i over the last `sum` layers before the choice             (2) those in which row i exists
//   w_i = max over |j - i| <= widen of s_j                                     (3) positions, not rows
//   v_i = max of w_j over the sentence of i                                    (4) with whole=sentence
//
// (2) is for prefill. In decode the last layer's scores count alone: tokens that come back have none below.
// (3) keeps a fact whole: its next digit is often not what the prompt's end looks at (docs/quality.md).
// (4) keeps a sentence together as far as the budget allows. In a sentence of more than 64 tokens (code, a
// list) the maximum is over |j - i| <= 32 inside it, so that one high score never takes more than 65 tokens
// along. Generated tokens are sentences of their own.
#pragma once

#include <cstdint>
#include <memory>
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
  int sum = 1;
  bool whole_sentence = false;
  std::shared_ptr<const std::vector<int32_t>> sentences =
      {};  // of each prompt token, ascending; null without (4)

  // Whether the scores of `layer` are part of (2) for a choice that follows the attention of layer `last`.
  bool Counts(Phase phase, int layer, int last) const {
    return layer >= 0 && layer <= last && last - layer < (phase == Phase::kPrefill ? sum : 1);
  }
  // (3) and (4), over rows at ascending positions.
  std::vector<float> Spread(std::span<const float> scores, std::span<const int32_t> positions) const;

  // What the layer must observe. In decode the current token asks, alone.
  Needs::Mass Need(Phase phase, std::span<const PositionSpan> question) const;
};

// The keys queries, ask, pool, skip_sink, widen, sum and whole, `fallback` where they are absent (`whole` has
// none); and as a spec has them.
RowScores ReadRowScores(SpecReader& read, const RowScores& fallback, const MethodContext& context);
std::string RowScoresText(const RowScores& scores);
// Adds their rows of `coppice methods` to a method's keys, in front of `key`.
void AddRowScoresKeys(std::string_view queries, std::string_view key, std::vector<MethodKey>& keys);

// The sentence of each prompt token. Throws Error, naming the key, where the prompt's tokens have no text.
// Null where there is no prompt: then only the settings are wanted.
std::shared_ptr<const std::vector<int32_t>> Sentences(std::string_view method, const MethodContext& context);

// (3) over rows at ascending positions. A NaN spreads nowhere.
std::vector<float> Widened(std::span<const float> scores, std::span<const int32_t> positions, int widen);
// (4), as (3). `sentences`: of each prompt token, ascending.
std::vector<float> WholeSentences(std::span<const float> scores, std::span<const int32_t> positions,
                                  std::span<const int32_t> sentences);

}  // namespace coppice
