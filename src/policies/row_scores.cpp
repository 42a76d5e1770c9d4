#include "policies/row_scores.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "policies/lexical_units.h"

namespace coppice {

namespace {
constexpr int64_t kLongestWhole = 64;  // tokens of a sentence that stays together
constexpr int kReachInLong = 32;       // positions that a score reaches in a longer one
}  // namespace

Needs::Mass RowScores::Need(Phase phase, std::span<const PositionSpan> question) const {
  Needs::Mass mass{.queries = queries, .pool = pool, .sink = skip_sink};
  if (phase == Phase::kDecode) mass.queries = 1;
  if (phase == Phase::kPrefill && of_question) mass.of.assign(question.begin(), question.end());
  return mass;
}

std::vector<float> RowScores::Spread(std::span<const float> scores,
                                     std::span<const int32_t> positions) const {
  std::vector<float> wide = Widened(scores, positions, widen);
  return sentences == nullptr ? wide : WholeSentences(wide, positions, *sentences);
}

Keys RowScoresKeys(RowScores& s, const ModelShape& shape, std::string_view queries) {
  return {
      {"queries", &s.queries, 1, 4096, "number of queries that score", queries},
      {"ask", &s.of_question, "end question",
       "score with the last queries of the prompt, or of the question"},
      {"pool", &s.pool, "mean max", "how scores of heads and queries are pooled"},
      {"skip_sink", &s.skip_sink, 0, 4096, "leave keys below this position out of the softmax that scores"},
      {"widen", &s.widen, 0, 4096, "a token takes the best score within this many positions"},
      {"sum", &s.sum, 1, std::max(shape.layer_count(), 1),
       "number of layers before the choice whose scores are summed (prefill)", "", "1 to L"},
      {"whole", &s.whole_sentence, "none sentence", "sentence: a token takes the best score of its sentence"},
  };
}

// A sliding window over the rows: the deque holds rows with falling scores, the best row of the window first.
std::vector<float> Widened(std::span<const float> scores, std::span<const int32_t> positions, int widen) {
  std::vector<float> wide(scores.begin(), scores.end());
  if (widen == 0) return wide;
  std::deque<size_t> best;
  size_t next = 0;
  for (size_t row = 0; row < scores.size(); ++row) {
    while (next < scores.size() && positions[next] <= positions[row] + widen) {
      if (!std::isnan(scores[next])) {
        while (!best.empty() && scores[best.back()] <= scores[next]) best.pop_back();
        best.push_back(next);
      }
      ++next;
    }
    while (!best.empty() && positions[best.front()] < positions[row] - widen) best.pop_front();
    if (!best.empty()) wide[row] = scores[best.front()];
  }
  return wide;
}

void FindSentences(std::string_view method, const MethodContext& context, RowScores& scores) {
  if (!scores.whole_sentence || context.prompt.empty()) return;
  if (!context.pieces) {
    throw PruneError("{}: whole=sentence needs the text of the prompt's tokens, which is not known here",
                     method);
  }
  scores.sentences =
      std::make_shared<const std::vector<int32_t>>(LexicalUnits(context.pieces(), LexicalUnit::kSentence));
}

std::vector<float> WholeSentences(std::span<const float> scores, std::span<const int32_t> positions,
                                  std::span<const int32_t> sentences) {
  std::vector<float> whole(scores.begin(), scores.end());
  size_t row = 0;
  while (row < scores.size() && static_cast<size_t>(positions[row]) < sentences.size()) {
    const auto [begin, end] =
        std::equal_range(sentences.begin(), sentences.end(), sentences[static_cast<size_t>(positions[row])]);
    const auto after = std::lower_bound(positions.begin(), positions.end(), end - sentences.begin());
    const auto rows = static_cast<size_t>(after - positions.begin()) - row;
    const int64_t tokens = end - begin;
    const int reach = tokens > kLongestWhole ? kReachInLong : static_cast<int>(tokens);
    const std::vector<float> best = Widened(scores.subspan(row, rows), positions.subspan(row, rows), reach);
    std::copy(best.begin(), best.end(), whole.begin() + static_cast<std::ptrdiff_t>(row));
    row += rows;
  }
  return whole;
}

}  // namespace coppice
