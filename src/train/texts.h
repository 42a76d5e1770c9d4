// Reads training texts from files: prompts with responses, or plain text cut into pieces.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer/tokenizer.h"
#include "train/frozen_model.h"

namespace coppice {

struct TextOptions {
  enum class Format { kAuto, kJsonl, kPlain };  // kAuto: JSON lines if the name ends in .jsonl
  Format format = Format::kAuto;
  bool chat = false;       // apply the model's chat template to prompts
  int64_t limit = 0;       // number of texts, from the first on; 0: all
  int64_t longest = 1024;  // tokens of prompt and response; longer texts are skipped, plain text is cut to it
  int64_t shortest = 16;   // tokens; texts with shorter prompts are skipped
  int64_t response = 64;   // tokens at the end of a piece of plain text that serve as the response
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

// JSON lines have the form {"instruction", "context" (or "input"), "response" (or "output")}, as in
// databricks-dolly-15k, where context may be absent or empty; or {"prompt", "answer"}, where the prompt is
// used unchanged. Other keys are ignored. A response is truncated if the text would be too long, but never to
// less than half. Throws Error, naming the file, the line and the field. Also throws if no text is left, and
// if the tokenizer produces ids beyond the model's `vocab`.
Texts ReadTexts(const std::vector<std::string>& files, const Tokenizer& tokenizer, int64_t vocab,
                const TextOptions& options);

}  // namespace coppice
