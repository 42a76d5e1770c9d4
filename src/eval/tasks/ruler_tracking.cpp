// RULER's variable tracking (scripts/data/synthetic/variable_tracking.py): a chain of assignments with four
// hops, hidden in noise, after one worked example of at most 500 tokens.
#include <fmt/core.h>

#include <algorithm>

#include "eval/random.h"
#include "eval/task.h"

namespace coppice {

namespace {

constexpr int64_t kVariables = 5;  // four hops
constexpr int64_t kAnswerTokens = 30;
constexpr int64_t kExampleTokens = 500;
constexpr std::string_view kNoise =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

struct Chain {
  std::vector<std::string> variables;
  std::string value;
};

Chain MakeChain(size_t letters, Random& random) {
  Chain chain;
  while (chain.variables.size() < kVariables) {
    std::string name;
    for (size_t i = 0; i < letters; ++i) name += static_cast<char>('A' + random.Below(26));
    const auto& all = chain.variables;
    if (std::find(all.begin(), all.end(), name) == all.end()) chain.variables.push_back(name);
  }
  chain.value = std::to_string(10000 + random.Below(89999));
  return chain;
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string Prompt(const Chain& chain, int64_t noises, Random& random) {
  std::vector<std::string> lines(static_cast<size_t>(noises), std::string(kNoise));
  std::vector<int64_t> places = random.Distinct(kVariables, noises);
  std::sort(places.begin(), places.end());
  for (size_t i = places.size(); i-- > 0;) {
    const std::string assigned = i == 0 ? chain.value : fmt::format("VAR {} ", chain.variables[i - 1]);
    lines.insert(lines.begin() + places[i], fmt::format("VAR {} = {}", chain.variables[i], assigned));
  }
  return fmt::format(
      "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n{}\nQuestion: "
      "Find all "
      "variables that are assigned the value {} in the text above.",
      JoinSentences(lines, 1), chain.value);
}

std::string AnswerPrefix(const Chain& chain) {
  return fmt::format(
      " Answer: According to the chain(s) of variable assignment in the text above, {} variables are "
      "assigned the value "
      "{}, they are: ",
      kVariables, chain.value);
}

// The chain is the same for each number of noise lines, so that the prompt's length depends only on that
// number.
std::string Example(const TaskRequest& request, Random random) {
  const Chain chain = MakeChain(3, random);
  TaskRequest small = request;
  small.length = kExampleTokens;
  const Sample fitted = FitToLength(small, "ruler/vt", kVariables, [&](int64_t noises) {
    Sample sample;
    Random places = random;
    sample.prompt = Prompt(chain, noises, places) + AnswerPrefix(chain);
    return sample;
  });
  return fitted.prompt + " " + Joined(chain.variables) + "\n";
}

std::vector<Sample> TrackingSamples(const TaskRequest& request) {
  std::vector<Sample> samples;
  for (int64_t i = 0; i < request.samples; ++i) {
    Random random = RandomFor(request.seed, "vt", request.length, i);
    const Chain chain = MakeChain(5, random);
    const std::string example = Example(request, Random(random.Next()));
    samples.push_back(FitToLength(request, "ruler/vt", kVariables, [&](int64_t noises) {
      Random places = random;
      Sample sample;
      sample.id = std::to_string(i);
      sample.prompt = example + "\n" + Prompt(chain, noises, places);
      sample.answer_prefix = AnswerPrefix(chain);
      sample.metric = "string_match_all";
      sample.references = chain.variables;
      sample.max_tokens = kAnswerTokens;
      return sample;
    }));
  }
  return samples;
}

}  // namespace

void AddRulerTracking(std::vector<TaskInfo>& tasks) {
  tasks.push_back({.name = "ruler/vt",
                   .about = "variables that a chain of assignments gives one value",
                   .length = TaskLength::kMade,
                   .samples = TrackingSamples});
}

}  // namespace coppice
