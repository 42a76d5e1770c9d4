#include "server/text_stream.h"

#include <algorithm>
#include <utility>

namespace coppice {

TextStream::Stop::Stop(std::string stop) : text(std::move(stop)), shorter(text.size() + 1) {
  size_t length = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    while (length > 0 && text[i] != text[length]) length = shorter[length];
    if (text[i] == text[length]) ++length;
    shorter[i + 1] = static_cast<uint32_t>(length);
  }
}

void TextStream::Stop::Take(char c) {
  if (matched == text.size()) matched = shorter[matched];
  while (matched > 0 && text[matched] != c) matched = shorter[matched];
  if (text[matched] == c) ++matched;
}

TextStream::TextStream(const std::vector<std::string>& stop) {
  if (stop.empty()) return;
  by_first_.resize(256);
  for (const std::string& text : stop) {
    by_first_[static_cast<unsigned char>(text.front())].push_back(static_cast<uint32_t>(stops_.size()));
    stops_.emplace_back(text);
  }
}

std::string TextStream::Push(std::string_view bytes) {
  return stopped_ ? "" : Release(characters_.Push(bytes), false);
}

std::string TextStream::Flush() { return stopped_ ? "" : Release(characters_.Flush(), true); }

// Of several stop strings the one that begins first counts, and of these the first of the list.
void TextStream::Found(uint32_t index) {
  const size_t at = held_.size() - stops_[index].text.size();
  if (stopped_ && (at > stopped_at_ || (at == stopped_at_ && index > stopped_index_))) return;
  stopped_ = true;
  stopped_at_ = at;
  stopped_index_ = index;
}

// Every byte costs one step for each stop string that has begun, so that a thousand of them cost an answer
// next to nothing.
void TextStream::TakeByte(char c) {
  held_ += c;
  std::erase_if(begun_, [&](uint32_t index) {
    Stop& stop = stops_[index];
    stop.Take(c);
    if (stop.matched == stop.text.size()) Found(index);
    return stop.matched == 0;
  });
  for (const uint32_t index : by_first_[static_cast<unsigned char>(c)]) {
    Stop& stop = stops_[index];
    if (stop.matched > 0) continue;  // it had begun before
    stop.matched = 1;
    begun_.push_back(index);
    if (stop.text.size() == 1) Found(index);
  }
}

std::string TextStream::Release(std::string_view text, bool at_end) {
  if (stops_.empty()) return std::string(text);
  for (const char c : text) TakeByte(c);
  size_t end = held_.size();
  if (stopped_) {
    end = stopped_at_;
    stopped_by_ = stops_[stopped_index_].text;
  } else if (!at_end) {
    for (const uint32_t index : begun_) end = std::min(end, held_.size() - stops_[index].matched);
    // Stop strings are whole characters, as is the text; their beginnings may not be.
    while (end < held_.size() && (static_cast<unsigned char>(held_[end]) & 0xc0) == 0x80) --end;
  }
  std::string sent = held_.substr(0, end);
  held_.erase(0, end);
  return sent;
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
