// Turns the bytes of tokens into text that can be sent: whole UTF-8 characters, and no part of a stop string.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace coppice {

class TextStream {
 public:
  // The answer ends in front of the first of these stop strings. None may be empty.
  explicit TextStream(const std::vector<std::string>& stop);

  // Returns the text that can be sent now. A possible beginning of a stop string is held back.
  std::string Push(std::string_view bytes);
  // Returns the rest of the text if the answer ends without a stop string.
  std::string Flush();
  bool stopped() const { return stopped_; }
  // The stop string that ended the answer; empty if none did.
  const std::string& stopped_by() const { return stopped_by_; }

 private:
  // A stop string and how far the text's end matches it, in bytes, as Knuth, Morris and Pratt search it.
  struct Stop {
    explicit Stop(std::string text);
    // Takes the text's next byte.
    void Take(char c);

    std::string text;
    std::vector<uint32_t> shorter;  // by length of a match: that of the next shorter one
    size_t matched = 0;
  };

  std::string Release(std::string_view text, bool at_end);
  void TakeByte(char c);
  void Found(uint32_t index);

  std::vector<Stop> stops_;
  std::vector<std::vector<uint32_t>> by_first_;  // by a byte: the stop strings that begin with it
  std::vector<uint32_t> begun_;                  // those that the text's end matches in part
  Utf8Stream characters_;
  std::string held_;
  bool stopped_ = false;
  size_t stopped_at_ = 0;  // in held_
  uint32_t stopped_index_ = 0;
  std::string stopped_by_;
};

// The number of characters that begin in these bytes of a UTF-8 text.
size_t CountCharacters(std::string_view bytes);
bool IsWholeUtf8(std::string_view bytes);

}  // namespace coppice
