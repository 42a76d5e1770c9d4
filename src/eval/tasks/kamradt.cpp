// Kamradt's needle in a haystack (https://github.com/gkamradt/LLMTest_NeedleInAHaystack, MIT licence): its
// needle and its question, between the sentences of a long text. Its haystack is essays of Paul Graham, which
// the user gives as a file. A judge model scores it there; here the share of the needle's three phrases that
// the answer has.
#include <cmath>

#include "eval/random.h"
#include "eval/task.h"

namespace coppice {

namespace {

constexpr const char* kNeedle =
    "The best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a sunny day.";
constexpr const char* kQuestion =
    "What is the best thing to do in San Francisco? Don't give information outside the document or repeat "
    "your findings";
constexpr int64_t kAnswerTokens = 48;
constexpr size_t kPerParagraph = 6;

Sample MakeSample(const TaskRequest& request, int64_t number, int64_t filler_sentences) {
  Random random = RandomFor(request.seed, "kamradt", request.length, number);
  const double depth = request.depths == 1 ? 0.5
                                           : static_cast<double>(number % request.depths) /
                                                 static_cast<double>(request.depths - 1);
  std::vector<std::string> sentences = request.filler->Sentences(filler_sentences, random);
  const auto at = std::llround(depth * static_cast<double>(sentences.size()));
  sentences.insert(sentences.begin() + at, kNeedle);
  Sample sample;
  sample.id = std::to_string(number);
  sample.prompt = JoinSentences(sentences, kPerParagraph) + "\n\n" + kQuestion + "\n";
  sample.metric = "string_match_all";
  sample.references = {"eat a sandwich", "Dolores Park", "sunny day"};
  sample.max_tokens = kAnswerTokens;
  sample.evidence = kNeedle;
  sample.depth = depth;
  return sample;
}

std::vector<Sample> KamradtSamples(const TaskRequest& request) {
  std::vector<Sample> samples;
  for (int64_t i = 0; i < request.samples; ++i) {
    samples.push_back(
        FitToLength(request, "kamradt", 1, [&](int64_t n) { return MakeSample(request, i, n); }));
  }
  return samples;
}

}  // namespace

void AddKamradt(std::vector<TaskInfo>& tasks) {
  tasks.push_back({.name = "kamradt",
                   .about = "Kamradt's needle and question, at each depth of a long text",
                   .length = TaskLength::kMade,
                   .samples = KamradtSamples});
}

}  // namespace coppice
