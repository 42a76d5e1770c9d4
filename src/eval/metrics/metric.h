// The metrics by name: an explicit list.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "eval/metrics/chinese_words.h"
#include "eval/sample.h"

namespace coppice {

class TaskMetrics {
 public:
  // `jieba_folder` has jieba's data; empty: Debian's folder if it exists, else no dictionary.
  explicit TaskMetrics(std::string jieba_folder = "") : jieba_folder_(std::move(jieba_folder)) {}

  // In [0, 1]; the best reference's score if the metric judges each. Throws Error for an unknown metric, and
  // if jieba's data are needed and malformed.
  double Score(const Sample& sample, std::string_view prediction);

  static std::vector<std::string_view> Names();
  static bool NeedsChineseWords(std::string_view metric);
  // "jieba", or "characters" where there is no dictionary: scores of Chinese texts then differ from
  // LongBench's.
  std::string_view ChineseCutter() { return Words().has_dictionary() ? "jieba" : "characters"; }

 private:
  const ChineseWords& Words();

  std::string jieba_folder_;
  std::unique_ptr<ChineseWords> words_;  // read when first needed
};

}  // namespace coppice
