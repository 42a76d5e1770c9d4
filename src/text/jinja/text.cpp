#include "text/jinja/text.h"

#include <cstring>

#include <algorithm>

#include "text/unicode/unicode.h"

namespace coppice::jinja {
namespace {

uint8_t ByteAt(std::string_view text, size_t position) { return static_cast<uint8_t>(text[position]); }

bool IsContinuation(std::string_view text, size_t position) {
  return position < text.size() && (ByteAt(text, position) & 0xC0) == 0x80;
}

template <typename Map>
std::string MapText(std::string_view text, Map map) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = DecodeAt(text, i);
    const char32_t mapped = map(c.value);
    if (mapped == c.value) {
      out.append(text.substr(i, c.bytes));
    } else if (mapped == 0) {  // sharp s is the only letter here with a two-letter capital
      out.append("SS");
    } else {
      AppendUtf8(mapped, out);
    }
    i += c.bytes;
  }
  return out;
}

constexpr char32_t kSharpS = 0xDF;
char32_t UpperOrPair(char32_t value) { return value == kSharpS ? 0 : UpperOf(value); }

}  // namespace

CodePoint DecodeAt(std::string_view text, size_t position) {
  const uint8_t lead = ByteAt(text, position);
  if (lead < 0x80) return {lead, 1};
  const CodePoint invalid{static_cast<char32_t>(0xDC00 + lead), 1};
  const size_t bytes = lead >= 0xF0 && lead <= 0xF4  ? 4
                       : lead >= 0xE0 && lead < 0xF0 ? 3
                       : lead >= 0xC2 && lead < 0xE0 ? 2
                                                     : 0;
  if (bytes == 0) return invalid;
  char32_t value = lead & (0x7Fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if (!IsContinuation(text, position + i)) return invalid;
    value = (value << 6) | (ByteAt(text, position + i) & 0x3Fu);
  }
  if (value > 0x10FFFF || (bytes == 3 && value < 0x800) || (bytes == 4 && value < 0x10000)) return invalid;
  return {value, bytes};
}

size_t FindFirst(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  // The C library uses the two-way algorithm (Crochemore and Perrin 1991).
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t FindLast(std::string_view text, std::string_view part) {
  constexpr size_t kShort = 16;  // for short parts, |text| |part| steps are nearly linear
  if (part.size() <= kShort) return text.rfind(part);
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_part(part.rbegin(), part.rend());
  const size_t at = FindFirst(reversed_text, reversed_part);
  return at == std::string_view::npos ? at : text.size() - at - part.size();
}

size_t CountCodePoints(std::string_view text) {
  size_t count = 0;
  for (size_t i = 0; i < text.size(); i += DecodeAt(text, i).bytes) ++count;
  return count;
}

std::vector<size_t> CodePointOffsets(std::string_view text) {
  std::vector<size_t> offsets;
  offsets.reserve(text.size() + 1);
  for (size_t i = 0; i < text.size(); i += DecodeAt(text, i).bytes) offsets.push_back(i);
  offsets.push_back(text.size());
  return offsets;
}

bool IsSpace(char32_t value) { return IsWhiteSpace(value) || (value >= 0x1C && value <= 0x1F); }

bool IsCased(char32_t value) {
  return value == kSharpS || UpperOf(value) != value || LowerOf(value) != value;
}

std::string Upper(std::string_view text) { return MapText(text, UpperOrPair); }
std::string Lower(std::string_view text) { return MapText(text, LowerOf); }

std::string Capitalize(std::string_view text) {
  if (text.empty()) return {};
  const size_t first = DecodeAt(text, 0).bytes;
  return Upper(text.substr(0, first)) + Lower(text.substr(first));
}

std::string TitleCase(std::string_view text) {
  bool inside_word = false;
  return MapText(text, [&inside_word](char32_t value) {
    // Python writes "Ss" for a sharp s that begins a word; no word does.
    const char32_t mapped = inside_word ? LowerOf(value) : value == kSharpS ? value : TitleOf(value);
    inside_word = IsCased(value);
    return mapped;
  });
}

std::string_view Strip(std::string_view text, Ends ends, std::string_view set) {
  std::vector<char32_t> members;
  for (size_t i = 0; i < set.size();) {
    const CodePoint c = DecodeAt(set, i);
    members.push_back(c.value);
    i += c.bytes;
  }
  std::sort(members.begin(), members.end());
  const auto goes = [&](char32_t value) {
    return set.empty() ? IsSpace(value) : std::binary_search(members.begin(), members.end(), value);
  };
  while (ends != Ends::kRight && !text.empty()) {
    const CodePoint c = DecodeAt(text, 0);
    if (!goes(c.value)) break;
    text.remove_prefix(c.bytes);
  }
  while (ends != Ends::kLeft && !text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && text.size() - start < 4 && IsContinuation(text, start)) --start;
    // Not a single code point.
    if (start + DecodeAt(text, start).bytes != text.size()) start = text.size() - 1;
    if (!goes(DecodeAt(text, start).value)) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

}  // namespace coppice::jinja
