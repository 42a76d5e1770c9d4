// Turns attention into one score per row. The user of a method chooses which queries score, how heads and
// queries are pooled, which first keys take no part, over how many layers scores add up, and how far a high
// score spreads to its neighbours and over its sentence.
//
//   a_i = pool over heads h and queries q of softmax_{j >= sink}(q_h . k_j / sqrt(c))_i   (1) mean or maximum
//   s_i = sum of a_i over the last `sum` layers before the choice             (2) those in which row i exists
//   w_i = max over |j - i| <= widen of s_j                                     (3) positions, not rows
//   v_i = max of w_j over the sentence of i                                    (4) with whole=sentence
//
// (2) is for prefill. Decode uses only the last layer's scores: returning tokens have none in earlier
// layers. (3) keeps a fact whole: the prompt's end often does not attend to the fact's next digit
// (docs/quality.md). (4) keeps a sentence together as far as the budget allows. In a sentence of more than 64
// tokens (code, a list) the maximum is over |j - i| <= 32 inside it, so that one high score keeps at most 65
// tokens. Each generated token counts as a sentence of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "policies/keys.h"
#include "policies/method_info.h"
#include "policies/policy.h"

namespace coppice {

struct RowScores {
  int64_t queries = 1;
  bool of_question = false;  // the question's last `queries` tokens score; else the prompt's
  MassPool pool = MassPool::kSum;
  int32_t skip_sink = 0;  // keys at positions below this take no part
  int widen = 0;
  int sum = 1;
  bool whole_sentence = false;
  // The sentence of each prompt token, ascending. Null without (4), and for runs without a prompt.
  std::shared_ptr<const std::vector<int32_t>> sentences = {};

  // Returns true if (2) includes the scores of `layer` for a choice that follows the attention of layer
  // `last`.
  bool Counts(Phase phase, int layer, int last) const {
    return layer >= 0 && layer <= last && last - layer < (phase == Phase::kPrefill ? sum : 1);
  }
  // Applies (3) and (4) to rows at ascending positions.
  std::vector<float> Spread(std::span<const float> scores, std::span<const int32_t> positions) const;

  // The scores that the layer must observe. In decode only the current token's query scores.
  Needs::Mass Need(Phase phase, std::span<const PositionSpan> question) const;
};

// The keys of `scores`. `queries`: help's text for the default of the key `queries`; empty: its value.
Keys RowScoresKeys(RowScores& scores, const ModelShape& shape, std::string_view queries = "");
// For whole=sentence: sets the sentences of the prompt. Throws PruneError where the prompt's tokens have no
// text.
void FindSentences(std::string_view method, const MethodContext& context, RowScores& scores);

// Applies (3) to rows at ascending positions. A NaN does not spread.
std::vector<float> Widened(std::span<const float> scores, std::span<const int32_t> positions, int widen);
// Applies (4). `sentences`: of each prompt token, ascending.
std::vector<float> WholeSentences(std::span<const float> scores, std::span<const int32_t> positions,
                                  std::span<const int32_t> sentences);

}  // namespace coppice
