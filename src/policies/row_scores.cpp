#include "policies/row_scores.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

namespace coppice {

Needs::Mass RowScores::Need(Phase phase, std::span<const PositionSpan> question) const {
  Needs::Mass mass{.queries = queries, .pool = pool, .sink = skip_sink};
  if (phase == Phase::kDecode) mass.queries = 1;
  if (phase == Phase::kPrefill && of_question) mass.of.assign(question.begin(), question.end());
  return mass;
}

RowScores ReadRowScores(SpecReader& read, const RowScores& fallback) {
  RowScores scores = fallback;
  scores.queries = read.Integer("queries", fallback.queries, 1, 4096);
  const bool question_first = fallback.of_question;
  scores.of_question =
      read.Choice("ask", question_first ? std::vector<std::string>{"question", "end"}
                                        : std::vector<std::string>{"end", "question"}) == "question";
  const bool max_first = fallback.pool == MassPool::kMaximum;
  scores.pool = read.Choice("pool", max_first ? std::vector<std::string>{"max", "mean"}
                                              : std::vector<std::string>{"mean", "max"}) == "max"
                    ? MassPool::kMaximum
                    : MassPool::kSum;
  scores.skip_sink = static_cast<int32_t>(read.Integer("skip_sink", fallback.skip_sink, 0, 4096));
  scores.widen = static_cast<int>(read.Integer("widen", fallback.widen, 0, 4096));
  return scores;
}

std::string RowScoresText(const RowScores& scores) {
  return fmt::format("queries={},ask={},pool={},skip_sink={},widen={}", scores.queries,
                     scores.of_question ? "question" : "end",
                     scores.pool == MassPool::kMaximum ? "max" : "mean", scores.skip_sink, scores.widen);
}

void AddRowScoresKeys(std::string_view queries, std::string_view key, std::vector<MethodKey>& keys) {
  const auto at = std::find_if(keys.begin(), keys.end(), [&](const MethodKey& k) { return k.name == key; });
  const std::vector<MethodKey> more = {
      {"queries", queries, "1 to 4096", "how many queries score"},
      {"ask", "end", "end, question", "whose: the prompt's last tokens, or the question's last"},
      {"pool", "mean", "mean, max", "over heads and queries"},
      {"skip_sink", "0", "0 to 4096", "keys at positions below this score nothing and take no mass"},
      {"widen", "0", "0 to 4096", "a token has the best score of so many neighbours on both sides"}};
  keys.insert(at, more.begin(), more.end());
}

// A window that slides over the rows: the deque holds rows whose scores fall, the best of the window in front.
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

}  // namespace coppice
