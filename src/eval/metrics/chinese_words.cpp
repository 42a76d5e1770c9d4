#include "eval/metrics/chinese_words.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <utility>

#include "base/error.h"
#include "eval/metrics/python_text.h"

namespace coppice {

namespace {

constexpr double kNever = -3.14e100;
constexpr std::string_view kStateNames = "BEMS";
// finalseg/prob_start.py and prob_trans.py: natural logarithms, rows and columns in the order of kStateNames.
constexpr double kStart[] = {-0.26268660809250016, -3.14e+100, -3.14e+100, -1.4652633398537678};
constexpr double kMove[4][4] = {
    {kNever, -0.510825623765990, -0.916290731874155, kNever},
    {-0.5897149736854513, kNever, kNever, -0.8085250474669937},
    {kNever, -0.33344856811948514, -1.2603623820268226, kNever},
    {-0.7211965654669841, kNever, kNever, -0.6658631448798212},
};
// The states that may come before each, in the order of kStateNames.
constexpr std::pair<int, int> kBefore[] = {{1, 3}, {0, 2}, {0, 2}, {1, 3}};

bool IsHan(char32_t c) { return c >= 0x4E00 && c <= 0x9FD5; }
bool IsAsciiLetter(char32_t c) { return (c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z'); }
bool IsAsciiDigit(char32_t c) { return c >= U'0' && c <= U'9'; }
bool IsAlphanumeric(char32_t c) { return IsAsciiLetter(c) || IsAsciiDigit(c); }
bool IsInBlock(char32_t c) {
  return IsHan(c) || IsAlphanumeric(c) ||
         std::u32string_view(U"+#&._%-").find(c) != std::u32string_view::npos;
}

std::ifstream Open(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in)
    throw Error("[eval] {}: cannot read; Chinese metrics need jieba's data (Debian: python3-jieba)", path);
  return in;
}

// The length of a match of [a-zA-Z0-9]+(?:\.\d+)?%? at `at`.
size_t WordLength(std::u32string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() && IsAlphanumeric(text[end])) ++end;
  if (end == at) return 0;
  if (end + 1 < text.size() && text[end] == U'.' && IsPythonDigit(text[end + 1])) {
    ++end;
    while (end < text.size() && IsPythonDigit(text[end])) ++end;
  }
  if (end < text.size() && text[end] == U'%') ++end;
  return end - at;
}

// What re.split by that pattern leaves, without the empty texts.
void SplitLatin(std::u32string_view text, std::vector<std::u32string>& words) {
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t length = WordLength(text, at);
    if (length == 0) {
      ++at;
      continue;
    }
    if (at > begin) words.emplace_back(text.substr(begin, at - begin));
    words.emplace_back(text.substr(at, length));
    begin = at += length;
  }
  if (begin < text.size()) words.emplace_back(text.substr(begin));
}

template <typename Inside>
size_t RunLength(std::u32string_view text, size_t at, Inside inside) {
  const bool first = inside(text[at]);
  size_t end = at;
  while (end < text.size() && inside(text[end]) == first) ++end;
  return end - at;
}

}  // namespace

ChineseWords::ChineseWords(const std::string& folder) {
  ReadDictionary(folder + "/dict.txt");
  ReadEmissions(folder + "/finalseg/prob_emit.py");
}

// Lines "word frequency tag"; every beginning of a word is known as well, so that a walk can stop early.
void ChineseWords::ReadDictionary(const std::string& path) {
  std::ifstream in = Open(path);
  std::string line;
  double total = 0;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    const size_t space = line.find(' ');
    int64_t frequency = -1;
    if (space != std::string::npos) std::from_chars(&line[space + 1], line.data() + line.size(), frequency);
    if (frequency < 0 || space == 0)
      throw Error("[eval] {}: line {} is no word with a frequency", path, number);
    const std::u32string word = ToCodePoints(std::string_view(line).substr(0, space));
    frequencies_[word] = frequency;
    total += static_cast<double>(frequency);
    for (size_t size = 1; size < word.size(); ++size) frequencies_.emplace(word.substr(0, size), 0);
  }
  if (total <= 0) throw Error("[eval] {}: holds no words", path);
  log_total_ = std::log(total);
}

// A Python literal {'B': {'\u4e00': -3.65, ...}, 'E': ...}; only its names, escapes and numbers matter.
void ChineseWords::ReadEmissions(const std::string& path) {
  std::ifstream in = Open(path);
  int state = -1;
  size_t found = 0;
  for (std::string line; std::getline(in, line);) {
    for (size_t at = line.find('\''); at != std::string::npos; at = line.find('\'', at + 1)) {
      const size_t end = line.find('\'', at + 1);
      if (end == std::string::npos) break;
      const std::string_view name = std::string_view(line).substr(at + 1, end - at - 1);
      uint32_t code = 0;
      double value = 0;
      const size_t colon = line.find_first_not_of(": ", end + 1);
      if (name.size() == 1) {
        const size_t index = kStateNames.find(name);
        state = index == std::string_view::npos ? -1 : static_cast<int>(index);
      } else if (state >= 0 && name.starts_with("\\u") && colon != std::string::npos) {
        std::from_chars(name.data() + 2, name.data() + name.size(), code, 16);
        const auto number = std::from_chars(&line[colon], line.data() + line.size(), value);
        if (number.ec != std::errc()) throw Error("[eval] {}: no number behind '{}'", path, name);
        emissions_[static_cast<size_t>(state)][code] = value;
        ++found;
      }
      at = end;
    }
  }
  if (found == 0) throw Error("[eval] {}: holds no probabilities of characters", path);
}

int64_t ChineseWords::Frequency(std::u32string_view word) const {
  const auto found = frequencies_.find(std::u32string(word));
  return found == frequencies_.end() ? -1 : found->second;
}

double ChineseWords::Emission(int state, char32_t c) const {
  const auto& table = emissions_[static_cast<size_t>(state)];
  const auto found = table.find(c);
  return found == table.end() ? kNever : found->second;
}

std::vector<std::u32string> ChineseWords::Cut(std::u32string_view text) const {
  std::vector<std::u32string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t length = RunLength(text, at, IsInBlock);
    const std::u32string_view run = text.substr(at, length);
    at += length;
    if (IsInBlock(run.front()) && has_dictionary()) {
      CutBlock(run, words);
      continue;
    }
    for (size_t i = 0; i < run.size();) {
      const bool line_end = run.substr(i).starts_with(U"\r\n");
      const size_t size = line_end ? 2 : std::max<size_t>(has_dictionary() ? 1 : WordLength(run, i), 1);
      words.emplace_back(run.substr(i, size));
      i += size;
    }
  }
  return words;
}

// For each character, the last character of the word that begins there on the best path to the block's end.
std::vector<size_t> ChineseWords::BestEnds(std::u32string_view block) const {
  std::vector<double> route(block.size() + 1);
  std::vector<size_t> ends(block.size());
  for (size_t i = block.size(); i-- > 0;) {
    double best = -std::numeric_limits<double>::infinity();
    bool any = false;
    const auto offer = [&](size_t last, int64_t frequency) {
      // The order of the sum decides ties, and is Python's.
      const double value =
          std::log(static_cast<double>(std::max<int64_t>(frequency, 1))) - log_total_ + route[last + 1];
      if (value >= best) {
        best = value;
        ends[i] = last;
      }
      any = true;
    };
    for (size_t last = i; last < block.size(); ++last) {
      const int64_t frequency = Frequency(block.substr(i, last + 1 - i));
      if (frequency < 0) break;
      if (frequency > 0) offer(last, frequency);
    }
    if (!any) offer(i, 1);
    route[i] = best;
  }
  return ends;
}

void ChineseWords::CutBlock(std::u32string_view block, std::vector<std::u32string>& words) const {
  const std::vector<size_t> ends = BestEnds(block);
  size_t singles = 0;  // characters before `at` that are words of one character each
  for (size_t at = 0; at < block.size(); at = ends[at] + 1) {
    if (ends[at] == at) {
      ++singles;
      continue;
    }
    CutSingles(block.substr(at - singles, singles), words);
    singles = 0;
    words.emplace_back(block.substr(at, ends[at] + 1 - at));
  }
  CutSingles(block.substr(block.size() - singles), words);
}

void ChineseWords::CutSingles(std::u32string_view singles, std::vector<std::u32string>& words) const {
  if (singles.size() == 1 || Frequency(singles) > 0) {
    for (const char32_t c : singles) words.emplace_back(1, c);
    return;
  }
  for (size_t at = 0; at < singles.size();) {
    const size_t length = RunLength(singles, at, IsHan);
    const std::u32string_view run = singles.substr(at, length);
    if (IsHan(run.front())) {
      CutByStates(run, words);
    } else {
      SplitLatin(run, words);
    }
    at += length;
  }
}

void ChineseWords::CutByStates(std::u32string_view han, std::vector<std::u32string>& words) const {
  std::vector<std::array<double, kStates>> score(han.size());
  std::vector<std::array<int, kStates>> from(han.size());
  for (int state = 0; state < kStates; ++state) score[0][state] = kStart[state] + Emission(state, han[0]);
  for (size_t t = 1; t < han.size(); ++t) {
    for (int state = 0; state < kStates; ++state) {
      const auto [first, second] = kBefore[state];
      const double emission = Emission(state, han[t]);
      const double by_first = score[t - 1][first] + kMove[first][state] + emission;
      const double by_second = score[t - 1][second] + kMove[second][state] + emission;
      from[t][state] = by_second >= by_first ? second : first;
      score[t][state] = std::max(by_first, by_second);
    }
  }
  constexpr int kEnd = 1, kBegin = 0, kSingle = 3;
  std::vector<int> path(han.size());
  path.back() = score.back()[kSingle] >= score.back()[kEnd] ? kSingle : kEnd;
  for (size_t t = han.size() - 1; t > 0; --t) path[t - 1] = from[t][path[t]];
  size_t begin = 0, next = 0;
  for (size_t i = 0; i < han.size(); ++i) {
    if (path[i] == kBegin) begin = i;
    if (path[i] == kEnd) words.emplace_back(han.substr(begin, i + 1 - begin));
    if (path[i] == kSingle) words.emplace_back(1, han[i]);
    if (path[i] == kEnd || path[i] == kSingle) next = i + 1;
  }
  if (next < han.size()) words.emplace_back(han.substr(next));
}

}  // namespace coppice
