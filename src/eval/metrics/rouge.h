// ROUGE-L as the Python package `rouge` 1.0.1 computes it with its defaults, which is what LongBench reports.
//
// It differs from the textbook: sentences end at every full stop, repeated words count once, and the longest
// common subsequences of a reference sentence with all predicted sentences are united as sets.
#pragma once

#include <string_view>

#include "eval/metrics/chinese_words.h"

namespace coppice {

// F of rouge-l in [0, 1]; 0 where either text has no sentence. O(words of the prediction x words of the
// reference).
double RougeL(std::string_view prediction, std::string_view reference);

// The same over words as jieba cuts them, joined by spaces.
double RougeLChinese(std::string_view prediction, std::string_view reference, const ChineseWords& words);

}  // namespace coppice
