// Needle in a haystack: a fact hidden at a given depth among others of the same form, and a question about
// it.
//
// The form is the one that the bundled model knows (models/README.md): "The secret code of the misty harbor
// is 48213." Samples go over the depths in turn, so that lengths x depths make the papers' heat map.
#include <algorithm>
#include <array>

#include "eval/random.h"
#include "eval/task.h"
#include "eval/words.h"

namespace coppice {

namespace {

constexpr std::array<std::string_view, 5> kKinds = {"secret code", "magic number", "room number",
                                                    "ticket number", "postal code"};
constexpr int64_t kAnswerTokens = 8;  // five digits, a full stop, and a space where a tokenizer needs them
constexpr size_t kPerParagraph = 6;

struct Fact {
  std::string subject;  // "secret code of the misty harbor"
  std::string number;
  std::string Sentence() const { return "The " + subject + " is " + number + "."; }
};

// Facts whose subjects differ in both words; the first is the one asked for.
std::vector<Fact> MakeFacts(int64_t count, Random& random) {
  const std::vector<int64_t> adjectives = random.Distinct(count, static_cast<int64_t>(Adjectives().size()));
  const std::vector<int64_t> nouns = random.Distinct(count, static_cast<int64_t>(Nouns().size()));
  const size_t first_kind = random.Below(kKinds.size());
  std::vector<Fact> facts;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    std::string subject(kKinds[(first_kind + i) % kKinds.size()]);
    subject.append(" of the ").append(Adjectives()[static_cast<size_t>(adjectives[i])]);
    subject.append(" ").append(Nouns()[static_cast<size_t>(nouns[i])]);
    facts.push_back({std::move(subject), std::to_string(10000 + random.Below(90000))});
  }
  return facts;
}

// Inserts the asked fact at `depth` and the others evenly over the text in random order; from the back, so
// that places do not shift.
std::vector<std::string> Hide(std::vector<std::string> sentences, std::vector<Fact> facts, double depth,
                              Random& random) {
  std::vector<std::pair<double, std::string>> placed = {{depth, facts.front().Sentence()}};
  std::vector<Fact> others(facts.begin() + 1, facts.end());
  random.Shuffle(others);
  for (size_t i = 0; i < others.size(); ++i) {
    placed.emplace_back((static_cast<double>(i) + 0.5) / static_cast<double>(others.size()),
                        others[i].Sentence());
  }
  std::stable_sort(placed.begin(), placed.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  const auto count = static_cast<double>(sentences.size());
  for (auto& [share, sentence] : placed) {
    const auto at = static_cast<std::ptrdiff_t>(share * count + 0.5);
    sentences.insert(sentences.begin() + at, std::move(sentence));
  }
  return sentences;
}

Sample MakeNeedle(const TaskRequest& request, int64_t number, int64_t filler_sentences) {
  Random random = RandomFor(request.seed, "niah", request.length, number);
  const std::vector<Fact> facts = MakeFacts(request.distractors + 1, random);
  const int64_t place = number % request.depths;
  const double depth =
      request.depths == 1 ? 0.5 : static_cast<double>(place) / static_cast<double>(request.depths - 1);
  std::vector<std::string> sentences = request.filler->Sentences(filler_sentences, random);
  sentences = Hide(std::move(sentences), facts, depth, random);
  const std::string& subject = facts.front().subject;
  Sample sample;
  sample.id = std::to_string(number);
  sample.prompt =
      JoinSentences(sentences, kPerParagraph) + "\nQuestion: What is the " + subject + "?\nAnswer:";
  sample.answer_prefix = " The " + subject + " is";
  sample.metric = "number_match";
  sample.references = {facts.front().number};
  sample.max_tokens = kAnswerTokens;
  sample.evidence = facts.front().Sentence();
  sample.depth = depth;
  return sample;
}

std::vector<Sample> NeedleSamples(const TaskRequest& request) {
  std::vector<Sample> samples;
  for (int64_t i = 0; i < request.samples; ++i) {
    samples.push_back(FitToLength(request, "niah", 1, [&](int64_t n) { return MakeNeedle(request, i, n); }));
  }
  return samples;
}

}  // namespace

void AddNeedle(std::vector<TaskInfo>& tasks) {
  tasks.push_back({.name = "niah",
                   .about = "one fact among others of its form, at each depth of a long text",
                   .length = TaskLength::kMade,
                   .samples = NeedleSamples});
}

}  // namespace coppice
