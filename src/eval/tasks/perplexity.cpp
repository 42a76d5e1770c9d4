// Perplexity of the last tokens of a text after a pruned prefill of the rest, and the divergence from dense
// at each of them. Perplexity needs a haystack of real text; with generated sentences only the divergence is
// meaningful.
//
// continue/N is the same with N tokens: papers give times of prompts of one length with N tokens behind them.
#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "eval/random.h"
#include "eval/task.h"

namespace coppice {

namespace {

// Tokens that are scored; each keeps a row of dense's logits in memory.
struct Continued {
  const char* name;
  int64_t tokens;
};
constexpr Continued kContinued[] = {{"perplexity", 64}, {"continue/16", 16}, {"continue/128", 128}};
constexpr int64_t kLeastPrompt = 32;

// The next place at or after `at` where a character begins.
size_t CharacterStart(const std::string& text, size_t at) {
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) ++at;
  return at;
}

Sample MakeSample(const TaskRequest& request, int64_t scored, int64_t number) {
  const auto wanted = static_cast<size_t>(request.length - 1);  // one for the start of the text
  std::vector<int32_t> ids;
  for (int64_t count = request.length / 16 + 1; ids.size() < wanted; count *= 2) {
    Random random = RandomFor(request.seed, "perplexity", 0, number);
    const std::string text = JoinSentences(request.filler->Sentences(count, random), 6);
    ids = request.tokenizer->Encode(text, {.add_special = false, .parse_special = false});
  }
  ids.resize(wanted);
  const std::vector<std::string> pieces = PiecesOf(*request.tokenizer, ids);
  std::string text;
  size_t seam = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (i == wanted - static_cast<size_t>(scored)) seam = text.size();
    text += pieces[i];
  }
  seam = CharacterStart(text, seam);
  Sample sample;
  sample.id = std::to_string(number);
  sample.kind = SampleKind::kContinue;
  sample.choices = {{text.substr(0, seam), text.substr(seam)}};
  return sample;
}

std::vector<Sample> SamplesOf(const Continued& task, const TaskRequest& request) {
  const int64_t least = task.tokens + std::max(task.tokens, kLeastPrompt);
  if (request.length < least)
    throw Error("{}: the length {} is below {}, the least for {} scored tokens", task.name, request.length,
                least, task.tokens);
  std::vector<Sample> samples;
  for (int64_t i = 0; i < request.samples; ++i) samples.push_back(MakeSample(request, task.tokens, i));
  return samples;
}

}  // namespace

void AddPerplexity(std::vector<TaskInfo>& tasks) {
  for (const Continued& task : kContinued) {
    tasks.push_back(
        {.name = task.name,
         .about = fmt::format("perplexity of the last {} tokens of a text, and the divergence from dense",
                              task.tokens),
         .length = TaskLength::kMade,
         .samples = [&task](const TaskRequest& request) { return SamplesOf(task, request); }});
  }
}

}  // namespace coppice
