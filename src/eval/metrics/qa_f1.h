// F1 over words, as LongBench scores question answering.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "eval/metrics/chinese_words.h"

namespace coppice {

// Of two bags of words: 2 P R / (P + R) of what they share; 0 where they share nothing.
double BagF1(const std::vector<std::u32string>& prediction, const std::vector<std::u32string>& reference);

// Lower case, without ASCII punctuation, articles and superfluous white space (SQuAD's normalisation).
std::u32string NormalizeEnglish(std::string_view text);
double QaF1(std::string_view prediction, std::string_view reference);

// Of words as jieba cuts them, without punctuation of either kind.
double QaF1Chinese(std::string_view prediction, std::string_view reference, const ChineseWords& words);

}  // namespace coppice
