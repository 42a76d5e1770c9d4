#include "engine/answer_judge.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace coppice {

namespace {

constexpr std::string_view kSpaces = " \t\r\n";
// Marks may stand within quotes and brackets, or in bold.
constexpr std::string_view kClosers = "\"')]}*_`";
constexpr size_t kKeptBytes = 64;  // enough for a mark and what closes behind it

double MeanOf(const std::deque<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// The full stops of scripts that put no space behind them.
bool EndsWithWideStop(std::string_view text) {
  return text.ends_with("\u3002") || text.ends_with("\uFF01") || text.ends_with("\uFF0E");
}

}  // namespace

bool AnswerJudge::SentenceEndsBefore(std::string_view next) const {
  std::string_view text = text_;
  const size_t last = text.find_last_not_of(kSpaces);
  if (last == text.npos) return false;
  const bool spaced = last + 1 < text.size() || next.empty() || kSpaces.find(next.front()) != kSpaces.npos;
  const size_t next_text = next.find_first_not_of(kSpaces);
  const bool new_line = text.find('\n', last) != text.npos ||
                        next.substr(0, std::min(next_text, next.size())).find('\n') != next.npos;
  text = text.substr(0, last + 1);
  while (!text.empty() && kClosers.find(text.back()) != kClosers.npos) text.remove_suffix(1);
  if (text.empty()) return false;
  if (EndsWithWideStop(text)) return true;
  if (text.back() == '.' || text.back() == '!') return spaced;
  // A list or a quotation follows a colon, and an answer a question.
  return new_line && text.back() != ':' && text.back() != '?' && !text.ends_with("\uFF1F");
}

AnswerJudge::Verdict AnswerJudge::Add(std::string_view text, double log_probability) {
  if (verdict_ != Verdict::kOpen) return verdict_;
  if (count_ >= kMostTokens || (count_ >= kLeastTokens && SentenceEndsBefore(text))) return End();
  ++count_;
  text_ += text;
  if (text_.size() > kKeptBytes) text_.erase(0, text_.size() - kKeptBytes);
  last_.push_back(log_probability);
  if (std::ssize(last_) > kInARow) last_.pop_front();
  if (std::ssize(last_) < kInARow) return verdict_;
  worst_ = std::min(worst_, MeanOf(last_));
  if (least_mean() < least_) verdict_ = Verdict::kDoubted;
  return verdict_;
}

AnswerJudge::Verdict AnswerJudge::End() {
  if (verdict_ != Verdict::kOpen) return verdict_;
  if (count_ > 0 && count_ < kInARow) worst_ = MeanOf(last_);
  verdict_ = least_mean() < least_ ? Verdict::kDoubted : Verdict::kBelieved;
  return verdict_;
}

double AnswerJudge::least_mean() const { return count_ == 0 || std::isinf(worst_) ? 1 : std::exp(worst_); }

}  // namespace coppice
