// Text to hide things in: sentences of a file that the user gives, or made ones that read like a plain story.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "eval/random.h"

namespace coppice {

class Filler {
 public:
  // Made sentences: no digits, and none of the forms that tasks hide.
  Filler() = default;
  // Throws Error, naming the file, where it cannot be read or holds no sentence.
  explicit Filler(const std::string& path);

  // `count` sentences: of a file those that follow a random one, round and round.
  std::vector<std::string> Sentences(int64_t count, Random& random) const;

 private:
  std::vector<std::string> sentences_;  // empty: made ones
};

// Sentences of a text, white space made single: an end is a full stop, question or exclamation mark, closing quotes
// behind it, and white space.
std::vector<std::string> SplitSentences(std::string_view text);

// Sentences as text: joined by spaces, a new line after every `per_paragraph`-th.
std::string JoinSentences(const std::vector<std::string>& sentences, size_t per_paragraph);

}  // namespace coppice
