// Regular expressions of tokenizer.json files without an equivalent scanner, through PCRE2.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/scanner.h"

namespace coppice {

class Regex {
 public:
  // `source` names the file in messages. Throws Error if PCRE2 cannot compile the pattern, or would interpret
  // it differently from the engine it was written for (a class inside a class).
  Regex(const std::string& pattern, const std::string& source);
  ~Regex();
  Regex(Regex&&) noexcept;

  // Appends every non-empty match, in order. Bytes that are not UTF-8 match nothing and end the text before
  // them. Throws Error if a match takes more than a fixed number of steps.
  void FindAll(std::string_view text, std::vector<TextRange>& matches) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace coppice
