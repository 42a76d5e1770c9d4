#include "eval/metrics/qa_f1.h"

#include <algorithm>
#include <map>

#include "eval/metrics/python_text.h"

namespace coppice {

namespace {

// As LongBench's metrics.py lists it.
constexpr std::u32string_view kChinesePunctuation =
    U"！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃》「」『』【】〔〕〖〗〘〙"
    U"〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏.";

std::vector<std::u32string> ChineseTokens(std::string_view text, const ChineseWords& words) {
  std::vector<std::u32string> tokens;
  for (const std::u32string& word : words.Cut(ToCodePoints(text))) {
    std::u32string token;
    for (const char32_t c : Lower(word)) {
      const bool drop = IsAsciiPunctuation(c) || IsPythonSpace(c) ||
                        kChinesePunctuation.find(c) != std::u32string_view::npos;
      if (!drop) token.push_back(c);
    }
    if (!token.empty()) tokens.push_back(std::move(token));
  }
  return tokens;
}

}  // namespace

double BagF1(const std::vector<std::u32string>& prediction, const std::vector<std::u32string>& reference) {
  std::map<std::u32string_view, int> bag;
  for (const std::u32string& word : reference) ++bag[word];
  double same = 0;
  for (const std::u32string& word : prediction) {
    const auto found = bag.find(word);
    if (found == bag.end() || found->second == 0) continue;
    --found->second;
    same += 1;
  }
  if (same == 0) return 0;
  const double precision = same / static_cast<double>(prediction.size());
  const double recall = same / static_cast<double>(reference.size());
  return 2 * precision * recall / (precision + recall);
}

std::u32string NormalizeEnglish(std::string_view text) {
  return WithoutArticles(WithoutAsciiPunctuation(Lower(ToCodePoints(text))));
}

double QaF1(std::string_view prediction, std::string_view reference) {
  return BagF1(SplitWords(NormalizeEnglish(prediction)), SplitWords(NormalizeEnglish(reference)));
}

double QaF1Chinese(std::string_view prediction, std::string_view reference, const ChineseWords& words) {
  return BagF1(ChineseTokens(prediction, words), ChineseTokens(reference, words));
}

}  // namespace coppice
