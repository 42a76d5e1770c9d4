// RULER's needle tasks (https://github.com/NVIDIA/RULER, scripts/data/synthetic/niah.py and
// scripts/synthetic.yaml).
//
// Templates, counts, places and answer lengths are RULER's. Its essays are not redistributable: the user's
// file or generated sentences take their place. Its words are from a package of English words, here from
// words.h.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "eval/random.h"
#include "eval/task.h"
#include "eval/words.h"

namespace coppice {

namespace {

enum class Haystack { kNoise, kEssay, kNeedles };
enum class Needle { kWords, kNumbers, kUuids };

struct Variant {
  std::string_view name;
  Haystack haystack;
  Needle key, value;
  int64_t keys, values, queries;
};

constexpr Variant kVariants[] = {
    {"single_1", Haystack::kNoise, Needle::kWords, Needle::kNumbers, 1, 1, 1},
    {"single_2", Haystack::kEssay, Needle::kWords, Needle::kNumbers, 1, 1, 1},
    {"single_3", Haystack::kEssay, Needle::kWords, Needle::kUuids, 1, 1, 1},
    {"multikey_1", Haystack::kEssay, Needle::kWords, Needle::kNumbers, 4, 1, 1},
    {"multikey_2", Haystack::kNeedles, Needle::kWords, Needle::kNumbers, 1, 1, 1},
    {"multikey_3", Haystack::kNeedles, Needle::kUuids, Needle::kUuids, 1, 1, 1},
    {"multivalue", Haystack::kEssay, Needle::kWords, Needle::kNumbers, 1, 4, 1},
    {"multiquery", Haystack::kEssay, Needle::kWords, Needle::kNumbers, 4, 1, 4},
};
constexpr int64_t kAnswerTokens = 128;
constexpr int64_t kDepths = 40;  // places of needles among essay sentences: 0 to 100 % in whole percents
constexpr std::string_view kNoise =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

std::string Draw(Needle kind, Random& random) {
  if (kind == Needle::kNumbers) return std::to_string(1000000 + random.Below(9000000));
  if (kind == Needle::kWords) {
    const std::string_view adjective = random.Pick(Adjectives());
    return fmt::format("{}-{}", adjective, random.Pick(Nouns()));
  }
  const uint64_t high = (random.Next() & ~uint64_t{0xf000}) | 0x4000;  // version 4
  const uint64_t low = (random.Next() & ~(uint64_t{3} << 62)) | (uint64_t{2} << 62);
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", high >> 32, (high >> 16) & 0xffff, high & 0xffff,
                     low >> 48, low & 0xffffffffffffu);
}

std::string NeedleText(const Variant& variant, std::string_view key, std::string_view value) {
  return fmt::format("One of the special magic {} for {} is: {}.",
                     variant.value == Needle::kNumbers ? "numbers" : "uuids", key, value);
}

// Inserts needles between the sentences, at distinct depths of the forty.
std::string HideInEssay(const std::vector<std::string>& needles, std::vector<std::string> sentences,
                        Random& random) {
  std::vector<int64_t> places = random.Distinct(static_cast<int64_t>(needles.size()), kDepths);
  std::sort(places.begin(), places.end());
  const auto count = static_cast<double>(sentences.size());
  for (size_t i = needles.size(); i-- > 0;) {
    const double percent = std::nearbyint(100.0 * static_cast<double>(places[i]) / (kDepths - 1));
    const auto at = static_cast<std::ptrdiff_t>(count * (percent / 100));
    sentences.insert(sentences.begin() + at, needles[i]);
  }
  return JoinSentences(sentences, sentences.size());
}

std::string HideInLines(const std::vector<std::string>& needles, std::vector<std::string> lines,
                        Random& random) {
  std::vector<int64_t> places =
      random.Distinct(static_cast<int64_t>(needles.size()), static_cast<int64_t>(lines.size()));
  std::sort(places.rbegin(), places.rend());
  for (size_t i = 0; i < needles.size(); ++i) lines.insert(lines.begin() + places[i], needles[i]);
  return JoinSentences(lines, 1);
}

std::vector<std::string> HaystackOf(const Variant& variant, const TaskRequest& request, int64_t size,
                                    Random& random) {
  if (variant.haystack == Haystack::kEssay) return request.filler->Sentences(size, random);
  std::vector<std::string> lines;
  for (int64_t i = 0; i < size; ++i) {
    if (variant.haystack == Haystack::kNoise) {
      lines.emplace_back(kNoise);
    } else {
      const std::string key = Draw(variant.key, random);
      lines.push_back(NeedleText(variant, key, Draw(variant.value, random)));
    }
  }
  return lines;
}

Sample MakeSample(const Variant& variant, const TaskRequest& request, int64_t number, int64_t size) {
  Random random = RandomFor(request.seed, variant.name, request.length, number);
  std::vector<std::string> keys, needles;
  std::vector<std::vector<std::string>> values;
  for (int64_t k = 0; k < variant.keys; ++k) {
    keys.push_back(Draw(variant.key, random));
    values.emplace_back();
    for (int64_t v = 0; v < variant.values; ++v) {
      values.back().push_back(Draw(variant.value, random));
      needles.push_back(NeedleText(variant, keys.back(), values.back().back()));
    }
  }
  random.Shuffle(needles);
  Sample sample;
  std::vector<std::string> asked;
  for (const int64_t k : random.Distinct(variant.queries, variant.keys)) {
    const auto key = static_cast<size_t>(k);
    asked.push_back(keys[key]);
    sample.references.insert(sample.references.end(), values[key].begin(), values[key].end());
  }
  std::vector<std::string> haystack = HaystackOf(variant, request, size, random);
  const std::string context = variant.haystack == Haystack::kEssay
                                  ? HideInEssay(needles, std::move(haystack), random)
                                  : HideInLines(needles, std::move(haystack), random);
  const std::string query = ListOf(asked);
  const bool one = variant.queries * variant.values == 1;
  const std::string kind =
      std::string(variant.value == Needle::kNumbers ? "number" : "uuid") + (one ? "" : "s");
  sample.id = std::to_string(number);
  sample.prompt = fmt::format(
      "{} special magic {} {} hidden within the following text. Make sure to memorize it. I will quiz you "
      "about the {} "
      "afterwards.\n{}\nWhat {} the special magic {} for {} mentioned in the provided text?",
      one ? "A" : "Some", kind, one ? "is" : "are", kind, context, one ? "is" : "are all", kind, query);
  sample.answer_prefix = fmt::format(" The special magic {} for {} mentioned in the provided text {}", kind,
                                     query, one ? "is" : "are");
  sample.metric = "string_match_all";
  sample.max_tokens = kAnswerTokens;
  if (needles.size() == 1)
    sample.depth = static_cast<double>(context.find(needles[0])) / static_cast<double>(context.size());
  return sample;
}

}  // namespace

void AddRulerNeedles(std::vector<TaskInfo>& tasks) {
  for (const Variant& variant : kVariants) {
    const std::string name = fmt::format("ruler/niah_{}", variant.name);
    const auto samples = [&variant, name](const TaskRequest& request) {
      std::vector<Sample> made;
      for (int64_t i = 0; i < request.samples; ++i) {
        made.push_back(FitToLength(request, name, variant.keys * variant.values,
                                   [&](int64_t size) { return MakeSample(variant, request, i, size); }));
      }
      return made;
    };
    tasks.push_back({.name = name,
                     .about = fmt::format("{} key(s), {} value(s) each, {} asked for", variant.keys,
                                          variant.values, variant.queries),
                     .length = TaskLength::kMade,
                     .samples = samples});
  }
}

}  // namespace coppice
