// RULER's aggregation tasks (scripts/data/synthetic/common_words_extraction.py and freq_words_extraction.py):
// to find the ten words of a numbered list that occur thirty times among others that occur three times, and
// the three commonest of coded words whose frequencies fall with the square of their rank.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "eval/random.h"
#include "eval/task.h"
#include "eval/words.h"

namespace coppice {

namespace {

constexpr int64_t kCommon = 10;
constexpr int64_t kCommonAnswerTokens = 120;
constexpr int64_t kCodedAnswerTokens = 50;
constexpr int64_t kShortPrompt = 4096;  // below it, RULER repeats words less often

struct Repeats {
  int64_t common, others;
};

// Distinct words. If they run out, RULER takes a larger dictionary; here two words are joined.
std::vector<std::string> DrawWords(int64_t count, Random& random) {
  std::vector<std::string_view> all;
  for (const auto list : {Nouns(), Adjectives(), Verbs()}) all.insert(all.end(), list.begin(), list.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  const auto singles = static_cast<int64_t>(all.size());
  const bool joined = count > singles;
  std::vector<std::string> words;
  for (const int64_t i : random.Distinct(count, joined ? singles * singles : singles)) {
    std::string word(all[static_cast<size_t>(i % singles)]);
    if (joined) word.append("-").append(all[static_cast<size_t>(i / singles)]);
    words.push_back(std::move(word));
  }
  return words;
}

struct WordList {
  std::string text;
  std::vector<std::string> common;
};

WordList MakeList(int64_t distinct, Repeats repeats, Random& random) {
  const std::vector<std::string> words = DrawWords(distinct, random);
  std::vector<std::string_view> list;
  for (size_t w = 0; w < words.size(); ++w)
    list.insert(list.end(), static_cast<size_t>(w < kCommon ? repeats.common : repeats.others), words[w]);
  random.Shuffle(list);
  WordList made;
  for (size_t i = 0; i < list.size(); ++i)
    made.text += fmt::format("{}{}. {}", i > 0 ? " " : "", i + 1, list[i]);
  made.common.assign(words.begin(), words.begin() + kCommon);
  return made;
}

std::string CommonPrompt(std::string_view list) {
  return fmt::format(
      "Below is a numbered list of words. In these words, some appear more often than others. Memorize the "
      "ones that "
      "appear most often.\n{}\nQuestion: What are the 10 most common words in the above list?",
      list);
}

constexpr std::string_view kCommonPrefix =
    " Answer: The top 10 words that appear most often in the list are:";

Sample MakeCommon(const TaskRequest& request, int64_t number, int64_t distinct) {
  Random random = RandomFor(request.seed, "cwe", request.length, number);
  const bool is_short = request.length < kShortPrompt;
  const WordList example = is_short ? MakeList(20, {3, 1}, random) : MakeList(40, {10, 3}, random);
  const WordList list = MakeList(distinct, is_short ? Repeats{6, 1} : Repeats{30, 3}, random);
  Sample sample;
  sample.id = std::to_string(number);
  sample.prompt = CommonPrompt(example.text).append(kCommonPrefix);
  for (size_t i = 0; i < example.common.size(); ++i)
    sample.prompt += fmt::format(" {}. {}", i + 1, example.common[i]);
  sample.prompt += "\n" + CommonPrompt(list.text);
  sample.answer_prefix = kCommonPrefix;
  sample.metric = "string_match_all";
  sample.references = list.common;
  sample.max_tokens = kCommonAnswerTokens;
  return sample;
}

Sample MakeCoded(const TaskRequest& request, int64_t number, int64_t words) {
  Random random = RandomFor(request.seed, "fwe", request.length, number);
  const int64_t vocabulary = std::max<int64_t>((request.length - kCodedAnswerTokens) / 50, 4);
  std::vector<std::string> coded = {"..."};  // the commonest is noise that the question says to ignore
  while (static_cast<int64_t>(coded.size()) < vocabulary) {
    std::string word;
    for (int i = 0; i < 6; ++i) word += static_cast<char>('a' + random.Below(26));
    if (std::find(coded.begin(), coded.end(), word) == coded.end()) coded.push_back(std::move(word));
  }
  constexpr double kZeta = std::numbers::pi * std::numbers::pi / 6;  // of 2
  std::vector<std::string_view> text;
  for (size_t rank = 1; rank <= coded.size(); ++rank) {
    const double share = std::pow(static_cast<double>(rank), -2.0) / kZeta;
    text.insert(text.end(), static_cast<size_t>(static_cast<double>(words) * share), coded[rank - 1]);
  }
  random.Shuffle(text);
  std::string joined;
  for (const std::string_view word : text) joined.append(joined.empty() ? "" : " ").append(word);
  Sample sample;
  sample.id = std::to_string(number);
  sample.prompt = fmt::format(
      "Read the following coded text and track the frequency of each coded word. Find the three most "
      "frequently appeared "
      "coded words. {}\nQuestion: Do not provide any explanation. Please ignore the dots '....'. What are "
      "the three most "
      "frequently appeared words in the above coded text?",
      joined);
  sample.answer_prefix =
      " Answer: According to the coded text above, the three most frequently appeared words are:";
  sample.metric = "string_match_all";
  sample.references.assign(coded.begin() + 1, coded.begin() + 4);
  sample.max_tokens = kCodedAnswerTokens;
  return sample;
}

template <typename Make>
auto SamplesOf(std::string name, int64_t least, Make make) {
  return [name = std::move(name), least, make](const TaskRequest& request) {
    std::vector<Sample> samples;
    for (int64_t i = 0; i < request.samples; ++i)
      samples.push_back(FitToLength(request, name, least, [&](int64_t n) { return make(request, i, n); }));
    return samples;
  };
}

}  // namespace

void AddRulerWords(std::vector<TaskInfo>& tasks) {
  tasks.push_back({.name = "ruler/cwe",
                   .about = "the ten commonest words of a list",
                   .length = TaskLength::kMade,
                   .samples = SamplesOf("ruler/cwe", kCommon, MakeCommon)});
  // Thirty words make the fourth rank occur once.
  tasks.push_back({.name = "ruler/fwe",
                   .about = "the three commonest words of a coded text",
                   .length = TaskLength::kMade,
                   .samples = SamplesOf("ruler/fwe", 30, MakeCoded)});
}

}  // namespace coppice
