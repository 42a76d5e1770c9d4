// Whether a pruned answer is to be believed, from how sure the model is of it.
//
// A pruned model that lost a fact still knows how an answer begins: it repeats the question as surely as
// before, and hesitates where the fact comes. So the signal is the least mean over a few tokens in a row, and
// it is read up to the end of the first sentence that answers. docs/quality.md compares it with others.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <string>
#include <string_view>

namespace coppice {

// Request::least_confidence where the caller leaves the choice to the program; docs/quality.md gives the
// reason.
inline constexpr double kDefaultLeastConfidence = 0.65;

class AnswerJudge {
 public:
  static constexpr int64_t kInARow = 4;  // tokens whose mean counts
  // A sentence that ends earlier is not judged alone: "Sure." says nothing.
  static constexpr int64_t kLeastTokens = 8;
  static constexpr int64_t kMostTokens = 48;  // that judge an answer without a sentence's end

  enum class Verdict { kOpen, kBelieved, kDoubted };

  // `least`: the answer is doubted if the geometric mean of the likeliest tokens' probabilities is below it
  // over any kInARow tokens in a row, or over an answer of fewer tokens.
  explicit AnswerJudge(double least) : least_(least) {}

  // The answer's next token: its text, and the natural logarithm of the likeliest token's probability at its
  // place. A sentence has ended if white space follows its mark, so the token behind it is not counted. A
  // question does not end it: the answer comes behind a question that is repeated.
  Verdict Add(std::string_view text, double log_probability);
  // The answer has ended.
  Verdict End();
  Verdict verdict() const { return verdict_; }
  // The least mean probability so far; 1 if there is no token.
  double least_mean() const;

 private:
  bool SentenceEndsBefore(std::string_view next) const;

  double least_;
  std::deque<double> last_;  // log-probabilities, at most kInARow
  double worst_ = std::numeric_limits<double>::infinity();
  int64_t count_ = 0;
  std::string text_;  // the end of what was added
  Verdict verdict_ = Verdict::kOpen;
};

}  // namespace coppice
