#include "eval/metrics/edit_similarity.h"

#include <cmath>
#include <string>
#include <unordered_map>
#include <vector>

#include "eval/metrics/python_text.h"

namespace coppice {

namespace {

// In a `b` of this length or more, difflib calls a character popular if it occurs more than length / 100 + 1
// times. Popular characters start no block.
constexpr size_t kPopularFrom = 200;

struct Block {
  size_t a = 0, b = 0, size = 0;
};

struct TextRange {
  size_t a_begin, a_end, b_begin, b_end;
};

class Matcher {
 public:
  Matcher(std::u32string_view a, std::u32string_view b) : a_(a), b_(b) {
    for (size_t j = 0; j < b.size(); ++j) places_[b[j]].push_back(j);
    if (b.size() < kPopularFrom) return;
    std::erase_if(places_, [&](const auto& entry) { return entry.second.size() > b.size() / 100 + 1; });
  }

  size_t MatchedCharacters() const {
    size_t matched = 0;
    std::vector<TextRange> queue = {{0, a_.size(), 0, b_.size()}};
    while (!queue.empty()) {
      const TextRange range = queue.back();
      queue.pop_back();
      const Block block = Longest(range);
      if (block.size == 0) continue;
      matched += block.size;
      queue.push_back({range.a_begin, block.a, range.b_begin, block.b});
      queue.push_back({block.a + block.size, range.a_end, block.b + block.size, range.b_end});
    }
    return matched;
  }

 private:
  // Finds the longest block without popular characters (of equally long ones the earliest), then extends it
  // on both sides while the characters match, popular or not.
  Block Longest(const TextRange& range) const {
    Block best{range.a_begin, range.b_begin, 0};
    std::unordered_map<size_t, size_t> lengths;  // of the match that ends at a[i - 1] and b[j]
    for (size_t i = range.a_begin; i < range.a_end; ++i) {
      std::unordered_map<size_t, size_t> next;
      const auto found = places_.find(a_[i]);
      if (found != places_.end()) {
        for (const size_t j : found->second) {
          if (j < range.b_begin) continue;
          if (j >= range.b_end) break;
          const auto before = j == 0 ? lengths.end() : lengths.find(j - 1);
          const size_t size = next[j] = (before == lengths.end() ? 0 : before->second) + 1;
          if (size > best.size) best = {i + 1 - size, j + 1 - size, size};
        }
      }
      lengths = std::move(next);
    }
    while (best.a > range.a_begin && best.b > range.b_begin && a_[best.a - 1] == b_[best.b - 1]) {
      --best.a;
      --best.b;
      ++best.size;
    }
    while (best.a + best.size < range.a_end && best.b + best.size < range.b_end &&
           a_[best.a + best.size] == b_[best.b + best.size]) {
      ++best.size;
    }
    return best;
  }

  std::u32string_view a_, b_;
  std::unordered_map<char32_t, std::vector<size_t>> places_;
};

}  // namespace

double SequenceRatio(std::u32string_view prediction, std::u32string_view reference) {
  const size_t length = prediction.size() + reference.size();
  if (length == 0) return 1;
  return 2.0 * static_cast<double>(Matcher(prediction, reference).MatchedCharacters()) /
         static_cast<double>(length);
}

double CodeSimilarity(std::string_view prediction, std::string_view reference) {
  while (!prediction.empty() && prediction.front() == '\n') prediction.remove_prefix(1);
  std::u32string line;
  for (const std::u32string& candidate : SplitAt(ToCodePoints(prediction), U'\n')) {
    const bool skip = candidate.find(U'`') != std::u32string::npos ||
                      candidate.find(U'#') != std::u32string::npos ||
                      candidate.find(U"//") != std::u32string::npos;
    if (skip) continue;
    line = candidate;
    break;
  }
  const std::u32string expected = ToCodePoints(reference);
  if (line == expected) return 1;
  if (line.empty() || expected.empty()) return 0;
  return std::nearbyint(100 * SequenceRatio(line, expected)) / 100;  // halves to even, as Python rounds
}

}  // namespace coppice
