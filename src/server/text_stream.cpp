#include "server/text_stream.h"

#include <algorithm>

namespace coppice {

std::string TextStream::Push(std::string_view bytes) {
  if (stopped_) return "";
  held_ += characters_.Push(bytes);
  return Release(false);
}

std::string TextStream::Flush() {
  if (stopped_) return "";
  held_ += characters_.Flush();
  return Release(true);
}

std::string TextStream::Release(bool at_end) {
  size_t end = std::string::npos;
  for (const std::string& stop : stop_) {
    const size_t at = held_.find(stop);
    if (at >= end) continue;
    end = at;
    stopped_by_ = stop;
  }
  if (end != std::string::npos) {
    stopped_ = true;
  } else {
    end = held_.size();
    for (const std::string& stop : stop_) {
      if (at_end) break;
      // The longest suffix of the text that is a prefix of the stop string.
      for (size_t n = std::min(stop.size() - 1, held_.size()); n > 0; --n) {
        if (!std::string_view(held_).ends_with(std::string_view(stop).substr(0, n))) continue;
        end = std::min(end, held_.size() - n);
        break;
      }
    }
    // Stop strings are whole characters, as is the text; their beginnings may not be.
    while (end < held_.size() && (static_cast<unsigned char>(held_[end]) & 0xc0) == 0x80) --end;
  }
  std::string text = held_.substr(0, end);
  held_.erase(0, end);
  return text;
}

size_t CountCharacters(std::string_view bytes) {
  return static_cast<size_t>(
      std::count_if(bytes.begin(), bytes.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

bool IsWholeUtf8(std::string_view bytes) {
  Utf8Stream stream;
  return stream.Push(bytes) == bytes;
}

}  // namespace coppice
