#include "eval/metrics/rouge.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "eval/metrics/python_text.h"

namespace coppice {

namespace {

using Sentence = std::vector<int32_t>;  // words as numbers
using Numbers = std::unordered_map<std::u32string, int32_t>;

// Texts are split at full stops; a stretch of white space between two of them is a sentence of one empty
// word.
std::vector<Sentence> Sentences(std::u32string_view text, Numbers& numbers) {
  std::vector<Sentence> sentences;
  const auto number = [&](const std::u32string& word) {
    return numbers.emplace(word, static_cast<int32_t>(numbers.size())).first->second;
  };
  for (const std::u32string& part : SplitAt(text, U'.')) {
    if (part.empty()) continue;
    Sentence sentence;
    for (const std::u32string& word : SplitWords(part)) sentence.push_back(number(word));
    if (sentence.empty()) sentence.push_back(number(U""));
    sentences.push_back(std::move(sentence));
  }
  return sentences;
}

// The words of one longest common subsequence: the one that walks left where both ways are equally long.
void AddCommon(const Sentence& x, const Sentence& y, std::set<int32_t>& found) {
  const size_t width = y.size() + 1;
  std::vector<int32_t> table((x.size() + 1) * width);
  for (size_t i = 1; i <= x.size(); ++i) {
    for (size_t j = 1; j <= y.size(); ++j) {
      const int32_t up = table[(i - 1) * width + j];
      const int32_t left = table[i * width + j - 1];
      table[i * width + j] = x[i - 1] == y[j - 1] ? table[(i - 1) * width + j - 1] + 1 : std::max(up, left);
    }
  }
  for (size_t i = x.size(), j = y.size(); i > 0 && j > 0;) {
    if (x[i - 1] == y[j - 1]) {
      found.insert(x[i - 1]);
      --i;
      --j;
    } else if (table[(i - 1) * width + j] > table[i * width + j - 1]) {
      --i;
    } else {
      --j;
    }
  }
}

size_t DistinctWords(const std::vector<Sentence>& sentences) {
  std::set<int32_t> words;
  for (const Sentence& sentence : sentences) words.insert(sentence.begin(), sentence.end());
  return words.size();
}

double RougeLOf(std::u32string_view prediction, std::u32string_view reference) {
  Numbers numbers;
  const std::vector<Sentence> predicted = Sentences(prediction, numbers);
  const std::vector<Sentence> expected = Sentences(reference, numbers);
  if (predicted.empty() || expected.empty()) return 0;
  std::set<int32_t> common;
  for (const Sentence& sentence : expected) {
    for (const Sentence& guess : predicted) AddCommon(sentence, guess, common);
  }
  const double recall = static_cast<double>(common.size()) / static_cast<double>(DistinctWords(expected));
  const double precision = static_cast<double>(common.size()) / static_cast<double>(DistinctWords(predicted));
  return 2.0 * ((precision * recall) / (precision + recall + 1e-8));
}

std::u32string Joined(const std::vector<std::u32string>& words) {
  std::u32string text;
  for (const std::u32string& word : words) {
    if (!text.empty()) text.push_back(U' ');
    text += word;
  }
  return text;
}

}  // namespace

double RougeL(std::string_view prediction, std::string_view reference) {
  return RougeLOf(ToCodePoints(prediction), ToCodePoints(reference));
}

double RougeLChinese(std::string_view prediction, std::string_view reference, const ChineseWords& words) {
  return RougeLOf(Joined(words.Cut(ToCodePoints(prediction))), Joined(words.Cut(ToCodePoints(reference))));
}

}  // namespace coppice
