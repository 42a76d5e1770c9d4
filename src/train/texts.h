// Training texts from files: prompts with responses, or plain text cut into pieces.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer.h"
#include "train/frozen_model.h"

namespace coppice {

struct TextOptions {
  enum class Format { kAuto, kJsonl, kPlain };  // auto: JSON lines where the name ends in .jsonl
  Format format = Format::kAuto;
  bool chat = false;       // prompts go through the model's chat template
  int64_t limit = 0;       // texts, the first ones; 0: all
  int64_t longest = 1024;  // tokens, prompt and response; longer ones are left out, plain text is cut to it
  int64_t shortest = 16;   // tokens of a prompt
  int64_t response = 64;   // tokens at the end of a piece of plain text that count as the response
};

struct TextCounts {
  int64_t used = 0;
  int64_t too_long = 0;
  int64_t too_short = 0;
};

struct Texts {
  std::vector<TrainingText> texts;
  TextCounts counts;
};

// JSON lines: {"instruction", "context" (or "input"), "response" (or "output")}, as databricks-dolly-15k has them, where
// context may be absent or empty; or {"prompt", "answer"}, the prompt as it is. Other keys are ignored. A response is cut
// where the text would be too long, but not below half of it. Throws Error naming the file, the line and the field; also
// where no text is left, and where the tokenizer has ids that the model (`vocab`) does not.
Texts ReadTexts(const std::vector<std::string>& files, const Tokenizer& tokenizer, int64_t vocab,
                const TextOptions& options);

}  // namespace coppice
