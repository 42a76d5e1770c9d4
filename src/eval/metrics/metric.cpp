#include "eval/metrics/metric.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>

#include "base/error.h"
#include "eval/metrics/class_count.h"
#include "eval/metrics/edit_similarity.h"
#include "eval/metrics/leval.h"
#include "eval/metrics/qa_f1.h"
#include "eval/metrics/rouge.h"
#include "eval/metrics/string_match.h"

namespace coppice {

namespace {

struct Question {
  std::string_view prediction;
  std::string_view reference;
  const Sample& sample;
  const ChineseWords* words;  // set for metrics that cut Chinese
};

struct NamedMetric {
  std::string_view name;
  bool all_references;  // judges all references at once, not each
  bool chinese;
  double (*score)(const Question& q);
};

constexpr std::array kMetrics = {
    NamedMetric{"string_match_all", true, false,
                [](const Question& q) { return StringMatchAll(q.prediction, q.sample.references); }},
    NamedMetric{"string_match_part", true, false,
                [](const Question& q) { return StringMatchPart(q.prediction, q.sample.references); }},
    NamedMetric{"number_match", true, false,
                [](const Question& q) { return NumberMatch(q.prediction, q.sample.references); }},
    NamedMetric{"last_number", false, false,
                [](const Question& q) { return LastNumber(q.prediction, q.reference); }},
    NamedMetric{"only_label", false, false,
                [](const Question& q) {
                  return OnlyLabel(q.prediction, q.reference, q.sample.question, q.sample.classes);
                }},
    NamedMetric{"qa_f1", false, false, [](const Question& q) { return QaF1(q.prediction, q.reference); }},
    NamedMetric{"qa_f1_zh", false, true,
                [](const Question& q) { return QaF1Chinese(q.prediction, q.reference, *q.words); }},
    NamedMetric{"rouge_l", false, false, [](const Question& q) { return RougeL(q.prediction, q.reference); }},
    NamedMetric{"rouge_l_zh", false, true,
                [](const Question& q) { return RougeLChinese(q.prediction, q.reference, *q.words); }},
    NamedMetric{
        "classification", false, false,
        [](const Question& q) { return ClassificationScore(q.prediction, q.reference, q.sample.classes); }},
    NamedMetric{"retrieval", false, false,
                [](const Question& q) { return RetrievalScore(q.prediction, q.reference); }},
    NamedMetric{"count", false, false,
                [](const Question& q) { return CountScore(q.prediction, q.reference); }},
    NamedMetric{"code_sim", false, false,
                [](const Question& q) { return CodeSimilarity(q.prediction, q.reference); }},
    NamedMetric{"choice", false, false,
                [](const Question& q) { return MultipleChoice(q.prediction, q.reference, false); }},
    NamedMetric{"choice_several", false, false,
                [](const Question& q) { return MultipleChoice(q.prediction, q.reference, true); }},
    NamedMetric{"final_number", false, false,
                [](const Question& q) { return FinalNumberMatch(q.prediction, q.reference); }},
    NamedMetric{"code_output", false, false,
                [](const Question& q) { return CodeOutput(q.prediction, q.reference); }},
    NamedMetric{"loyalty_fact", false, false,
                [](const Question& q) { return LoyaltyAndFact(q.prediction, q.reference); }},
    NamedMetric{"exact", false, false,
                [](const Question& q) { return ExactOrContained(q.prediction, q.reference); }},
};

const NamedMetric& Find(std::string_view name) {
  for (const NamedMetric& metric : kMetrics) {
    if (metric.name == name) return metric;
  }
  throw Error("[eval] '{}' is no metric", name);
}

std::string_view FirstLine(std::string_view text) {
  while (!text.empty() && text.front() == '\n') text.remove_prefix(1);
  return text.substr(0, text.find('\n'));
}

}  // namespace

double TaskMetrics::Score(const Sample& sample, std::string_view prediction) {
  const NamedMetric& metric = Find(sample.metric);
  const ChineseWords* words = metric.chinese ? &Words() : nullptr;
  if (sample.first_line) prediction = FirstLine(prediction);
  if (metric.all_references) return metric.score({prediction, {}, sample, words});
  double best = 0;
  for (const std::string& reference : sample.references)
    best = std::max(best, metric.score({prediction, reference, sample, words}));
  return best;
}

std::vector<std::string_view> TaskMetrics::Names() {
  std::vector<std::string_view> names;
  for (const NamedMetric& metric : kMetrics) names.push_back(metric.name);
  return names;
}

bool TaskMetrics::NeedsChineseWords(std::string_view metric) { return Find(metric).chinese; }

const ChineseWords& TaskMetrics::Words() {
  if (words_) return *words_;
  std::error_code ignored;
  const bool debian =
      std::filesystem::exists(std::string(ChineseWords::kDebianFolder) + "/dict.txt", ignored);
  if (jieba_folder_.empty() && !debian) {
    words_ = std::make_unique<ChineseWords>();
  } else {
    words_ =
        std::make_unique<ChineseWords>(jieba_folder_.empty() ? ChineseWords::kDebianFolder : jieba_folder_);
  }
  return *words_;
}

}  // namespace coppice
