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

bool Between(char32_t value, char32_t first, char32_t last) { return value >= first && value <= last; }

// Blocks in which capital and small letters alternate. `odd_capital` is true if capitals have odd code
// points.
bool InAlternatingBlock(char32_t value, bool& odd_capital) {
  odd_capital = Between(value, 0x139, 0x148) || Between(value, 0x179, 0x17E);
  return odd_capital || (Between(value, 0x100, 0x12F) || Between(value, 0x132, 0x137)) ||
         Between(value, 0x14A, 0x177) || Between(value, 0x460, 0x481) || Between(value, 0x48A, 0x4BF) ||
         Between(value, 0x4D0, 0x52F) || Between(value, 0x1E00, 0x1E95) || Between(value, 0x1EA0, 0x1EFF);
}

struct CaseRange {
  char32_t first, last;  // capitals
  char32_t distance;     // to the small letter
};
constexpr CaseRange kCaseRanges[] = {
    {'A', 'Z', 32},     {0xC0, 0xD6, 32},   {0xD8, 0xDE, 32},    {0x386, 0x386, 38}, {0x388, 0x38A, 37},
    {0x38C, 0x38C, 64}, {0x38E, 0x38F, 63}, {0x391, 0x3A1, 32},  {0x3A3, 0x3AB, 32}, {0x400, 0x40F, 80},
    {0x410, 0x42F, 32}, {0x531, 0x556, 48}, {0xFF21, 0xFF3A, 32}};

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

bool IsSpace(char32_t value) {
  return Between(value, 0x09, 0x0D) || Between(value, 0x1C, 0x20) || value == 0x85 || value == 0xA0 ||
         value == 0x1680 || Between(value, 0x2000, 0x200A) || value == 0x2028 || value == 0x2029 ||
         value == 0x202F || value == 0x205F || value == 0x3000;
}

bool IsPrintable(char32_t value) {
  if (value == ' ') return true;
  if (IsSpace(value) || value < 0x20 || Between(value, 0x7F, 0xA0) || value == 0xAD) return false;
  return !(Between(value, 0x200B, 0x200F) || Between(value, 0x202A, 0x202E) ||
           Between(value, 0x2060, 0x206F) || Between(value, 0xD800, 0xF8FF) || value == 0xFEFF ||
           Between(value, 0xFFF0, 0xFFFB) || Between(value, 0xFFFE, 0xFFFF) || value >= 0xE0000);
}

char32_t UpperOf(char32_t value) {
  for (const CaseRange& range : kCaseRanges) {
    if (value >= range.distance && Between(value - range.distance, range.first, range.last)) {
      return value - range.distance;
    }
  }
  bool odd_capital = false;
  if (InAlternatingBlock(value, odd_capital))
    return (value & 1u) == (odd_capital ? 1u : 0u) ? value : value - 1;
  switch (value) {
    case 0xFF:
      return 0x178;
    case 0xB5:
      return 0x39C;
    case 0x131:
      return 'I';
    case 0x17F:
      return 'S';
    case 0x3C2:
      return 0x3A3;
    default:
      return value;
  }
}

char32_t LowerOf(char32_t value) {
  for (const CaseRange& range : kCaseRanges) {
    if (Between(value, range.first, range.last)) return value + range.distance;
  }
  bool odd_capital = false;
  if (InAlternatingBlock(value, odd_capital))
    return (value & 1u) == (odd_capital ? 1u : 0u) ? value + 1 : value;
  return value == 0x178 ? 0xFF : value;
}

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
    const char32_t mapped = inside_word ? LowerOf(value) : UpperOf(value);
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
