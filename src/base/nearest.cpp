#include "base/nearest.h"

#include <algorithm>
#include <vector>

namespace coppice {

namespace {

char LowerLetter(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Damerau and Levenshtein's distance, without edits between swapped letters.
size_t DistanceOf(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const auto at = [&](size_t back_a, size_t back_b) {
        return LowerLetter(a[i - back_a]) == LowerLetter(b[j - back_b]);
      };
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (at(1, 1) ? 0 : 1)});
      if (i > 1 && j > 1 && at(1, 2) && at(2, 1)) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string Nearest(std::string_view word, std::span<const std::string> known) {
  constexpr size_t kLongest = 64;  // of a word: a request may send any
  if (word.size() > kLongest) return "";
  std::string nearest;
  size_t best = word.size() <= 4 ? 2 : word.size() <= 7 ? 3 : 4;
  for (const std::string& one : known) {
    if (one == word || one.size() > kLongest) continue;
    const size_t distance = word.size() >= 3 && one.starts_with(word) ? 1 : DistanceOf(word, one);
    if (distance >= best || distance >= one.size()) continue;
    best = distance;
    nearest = one;
  }
  return nearest;
}

}  // namespace coppice
