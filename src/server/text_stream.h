// Turns the bytes of tokens into text that can be sent: whole UTF-8 characters, and no part of a stop string.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace coppice {

class TextStream {
 public:
  // The answer ends in front of the first of these stop strings. None may be empty.
  explicit TextStream(std::vector<std::string> stop) : stop_(std::move(stop)) {}

  // Returns the text that can be sent now. A possible beginning of a stop string is held back.
  std::string Push(std::string_view bytes);
  // Returns the rest of the text if the answer ends without a stop string.
  std::string Flush();
  bool stopped() const { return stopped_; }
  // The stop string that ended the answer; empty if none did.
  const std::string& stopped_by() const { return stopped_by_; }

 private:
  std::string Release(bool at_end);

  std::vector<std::string> stop_;
  Utf8Stream characters_;
  std::string held_;
  bool stopped_ = false;
  std::string stopped_by_;
};

// The number of characters that begin in these bytes of a UTF-8 text.
size_t CountCharacters(std::string_view bytes);
bool IsWholeUtf8(std::string_view bytes);

}  // namespace coppice
