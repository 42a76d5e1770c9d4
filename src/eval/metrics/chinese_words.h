// Chinese text as the Python package jieba cuts it in its default mode, from jieba's own data files.
//
// A stretch of Chinese characters, letters and digits is cut along the path through a dictionary with the
// greatest product of word frequencies (dynamic programming). Single characters that are left are cut by a
// hidden Markov model over the states begin, middle, end, single (Viterbi). https://github.com/fxsjy/jieba,
// 0.42.1. The time is linear in the text, times the longest word of the dictionary.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace coppice {

class ChineseWords {
 public:
  // Where Debian's python3-jieba keeps dict.txt and finalseg/prob_emit.py.
  static constexpr const char* kDebianFolder = "/usr/lib/python3/dist-packages/jieba";

  // No dictionary: each character that is not a letter or digit is a word.
  ChineseWords() = default;
  // Throws Error, naming the file and line, if a file is missing or malformed.
  explicit ChineseWords(const std::string& folder);

  bool has_dictionary() const { return !frequencies_.empty(); }
  std::vector<std::u32string> Cut(std::u32string_view text) const;

 private:
  // B, E, M, S. Of equal states the later one in this order wins, as in Python's max.
  static constexpr int kStates = 4;

  void ReadDictionary(const std::string& path);
  void ReadEmissions(const std::string& path);
  int64_t Frequency(std::u32string_view word) const;
  void CutBlock(std::u32string_view block, std::vector<std::u32string>& words) const;
  void CutSingles(std::u32string_view singles, std::vector<std::u32string>& words) const;
  void CutByStates(std::u32string_view han, std::vector<std::u32string>& words) const;
  std::vector<size_t> BestEnds(std::u32string_view block) const;
  double Emission(int state, char32_t c) const;

  std::unordered_map<std::u32string, int64_t> frequencies_;  // 0: only the beginning of a word
  double log_total_ = 0;
  std::array<std::unordered_map<char32_t, double>, kStates> emissions_;
};

}  // namespace coppice
