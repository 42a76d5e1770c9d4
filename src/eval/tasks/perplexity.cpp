// Perplexity of the last tokens of a text after a pruned prefill of the rest, and the divergence from dense
// at each of them. Perplexity needs a haystack of real text; with generated sentences only the divergence is
// meaningful.
#include "eval/random.h"
#include "eval/task.h"

#include "base/error.h"

namespace coppice {

namespace {

constexpr int64_t kScored = 64;  // tokens; each keeps a row of dense's logits in memory

// The next place at or after `at` where a character begins.
size_t CharacterStart(const std::string& text, size_t at) {
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) ++at;
  return at;
}

Sample MakeSample(const TaskRequest& request, int64_t number) {
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
    if (i == wanted - kScored) seam = text.size();
    text += pieces[i];
  }
  seam = CharacterStart(text, seam);
  Sample sample;
  sample.id = std::to_string(number);
  sample.kind = SampleKind::kContinue;
  sample.choices = {{text.substr(0, seam), text.substr(seam)}};
  return sample;
}

std::vector<Sample> PerplexitySamples(const TaskRequest& request) {
  if (request.length < 2 * kScored)
    throw Error("perplexity: the length {} is below {}, twice the tokens that are scored", request.length,
                2 * kScored);
  std::vector<Sample> samples;
  for (int64_t i = 0; i < request.samples; ++i) samples.push_back(MakeSample(request, i));
  return samples;
}

}  // namespace

void AddPerplexity(std::vector<TaskInfo>& tasks) {
  tasks.push_back({.name = "perplexity",
                   .about = "of the last 64 tokens of a text, and the divergence from dense",
                   .length = TaskLength::kMade,
                   .samples = PerplexitySamples});
}

}  // namespace coppice
