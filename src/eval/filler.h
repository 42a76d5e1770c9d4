// Text in which tasks hide facts: sentences of the user's file, or generated ones that read like a plain
// story.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "eval/random.h"

namespace coppice {

class Filler {
 public:
  // Generated sentences: no digits, and no sentence in the form of a hidden fact.
  Filler() = default;
  // Throws Error, naming the file, where it cannot be read or holds no sentence.
  explicit Filler(const std::string& path);

  // `count` sentences; a file's are consecutive from a random one on, and start over at its end.
  std::vector<std::string> Sentences(int64_t count, Random& random) const;

 private:
  std::vector<std::string> sentences_;  // empty: generated sentences
};

// The sentences of a text, with single spaces. A sentence ends with a full stop, question or exclamation
// mark, optional closing quotes, and white space.
std::vector<std::string> SplitSentences(std::string_view text);

// Sentences as text: joined by spaces, a new line after every `per_paragraph`-th.
std::string JoinSentences(const std::vector<std::string>& sentences, size_t per_paragraph);

}  // namespace coppice
