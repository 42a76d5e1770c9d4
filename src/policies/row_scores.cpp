#include "policies/row_scores.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "base/error.h"
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

RowScores ReadRowScores(SpecReader& read, const RowScores& fallback, const MethodContext& context) {
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
  scores.sum = static_cast<int>(read.Integer("sum", fallback.sum, 1, std::max(context.shape.layers, 1)));
  scores.whole_sentence = read.Choice("whole", {"none", "sentence"}) == "sentence";
  if (scores.whole_sentence) scores.sentences = Sentences(read.method(), context);
  return scores;
}

std::string RowScoresText(const RowScores& scores) {
  return fmt::format("queries={},ask={},pool={},skip_sink={},widen={},sum={},whole={}", scores.queries,
                     scores.of_question ? "question" : "end",
                     scores.pool == MassPool::kMaximum ? "max" : "mean", scores.skip_sink, scores.widen,
                     scores.sum, scores.whole_sentence ? "sentence" : "none");
}

void AddRowScoresKeys(std::string_view queries, std::string_view key, std::vector<MethodKey>& keys) {
  const auto at = std::find_if(keys.begin(), keys.end(), [&](const MethodKey& k) { return k.name == key; });
  const std::vector<MethodKey> more = {
      {"queries", queries, "1 to 4096", "how many queries score"},
      {"ask", "end", "end, question", "whose: the prompt's last tokens, or the question's last"},
      {"pool", "mean", "mean, max", "over heads and queries"},
      {"skip_sink", "0", "0 to 4096", "keys at positions below this score nothing and take no mass"},
      {"widen", "0", "0 to 4096", "a token has the best score of so many neighbours on both sides"},
      {"sum", "1", "1 to L", "layers before the choice whose scores add up; in decode the last alone"},
      {"whole", "none", "none, sentence", "sentence: a token has the best score of its sentence"}};
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

std::shared_ptr<const std::vector<int32_t>> Sentences(std::string_view method, const MethodContext& context) {
  if (context.prompt.empty()) return nullptr;
  if (!context.pieces) {
    throw Error("--prune {}: whole=sentence needs the text of the prompt's tokens, which is not known here",
                method);
  }
  return std::make_shared<const std::vector<int32_t>>(LexicalUnits(context.pieces(), LexicalUnit::kSentence));
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
