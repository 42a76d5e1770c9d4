// Turns the bytes of tokens into text that can be sent: whole UTF-8 characters, nothing of a stop string.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace coppice {

class TextStream {
 public:
  // `stop`: texts that end the answer and are no part of it; none of them empty.
  explicit TextStream(std::vector<std::string> stop) : stop_(std::move(stop)) {}

  // The text that is certain now. What could be the beginning of a stop string is held back.
  std::string Push(std::string_view bytes);
  // What is left where the answer ends without one.
  std::string Flush();
  bool stopped() const { return stopped_; }

 private:
  std::string Release(bool at_end);

  std::vector<std::string> stop_;
  Utf8Stream characters_;
  std::string held_;
  bool stopped_ = false;
};

// Characters of a UTF-8 text; of the bytes of a part of one, those that begin in it.
size_t CountCharacters(std::string_view bytes);
bool IsWholeUtf8(std::string_view bytes);

}  // namespace coppice
