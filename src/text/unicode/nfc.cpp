// NFC: decomposes canonically, orders marks by combining class, composes (UAX #15; Hangul by arithmetic,
// chapter 3.12). A single pass over runs between starters; only sorting a run is not linear.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "text/unicode/unicode.h"
#include "text/unicode/unicode_data.h"

namespace coppice {
namespace {

constexpr uint32_t kHangulBase = 0xAC00, kLBase = 0x1100, kVBase = 0x1161, kTBase = 0x11A7;
constexpr uint32_t kLCount = 19, kVCount = 21, kTCount = 28, kHangulCount = kLCount * kVCount * kTCount;
constexpr uint32_t kComposes = 1u << 31;
// Below U+0300, no code point combines, and every decomposition composes back.
constexpr uint32_t kFirstAffected = 0x300;

struct Unit {
  uint32_t code;
  uint8_t combining;
};

uint8_t CombiningClass(uint32_t cp) {
  if (cp < kFirstAffected || cp == kInvalidByte) return 0;
  const uint32_t* run = std::upper_bound(kCombiningRuns, kCombiningRuns + kCombiningRunsSize, cp << 8 | 255u);
  return static_cast<uint8_t>(run[-1] & 255);
}

void Decompose(uint32_t cp, std::vector<Unit>& out) {
  if (cp >= kHangulBase && cp < kHangulBase + kHangulCount) {
    const uint32_t index = cp - kHangulBase;
    out.push_back({kLBase + index / (kVCount * kTCount), 0});
    out.push_back({kVBase + index % (kVCount * kTCount) / kTCount, 0});
    if (index % kTCount != 0) out.push_back({kTBase + index % kTCount, 0});
    return;
  }
  const Decomposition* end = kDecompositions + kDecompositionsSize;
  const Decomposition* found =
      std::lower_bound(kDecompositions, end, cp,
                       [](const Decomposition& d, uint32_t code) { return (d.code & ~kComposes) < code; });
  if (found == end || (found->code & ~kComposes) != cp) {
    out.push_back({cp, CombiningClass(cp)});
    return;
  }
  Decompose(found->first, out);  // the table nests at most four levels
  if (found->second != 0) Decompose(found->second, out);
}

using Compositions = std::map<std::pair<uint32_t, uint32_t>, uint32_t>;

const Compositions& CompositionTable() {
  static const Compositions table = [] {
    Compositions made;
    for (size_t i = 0; i < kDecompositionsSize; ++i) {
      const Decomposition& d = kDecompositions[i];
      if ((d.code & kComposes) != 0) made[{d.first, d.second}] = d.code & ~kComposes;
    }
    return made;
  }();
  return table;
}

// Returns 0 if the two do not compose.
uint32_t Compose(uint32_t first, uint32_t second) {
  if (first >= kLBase && first < kLBase + kLCount && second >= kVBase && second < kVBase + kVCount) {
    return kHangulBase + ((first - kLBase) * kVCount + (second - kVBase)) * kTCount;
  }
  if (first >= kHangulBase && first < kHangulBase + kHangulCount && (first - kHangulBase) % kTCount == 0 &&
      second > kTBase && second < kTBase + kTCount) {
    return first + (second - kTBase);
  }
  const auto found = CompositionTable().find({first, second});
  return found == CompositionTable().end() ? 0 : found->second;
}

void OrderMarks(std::vector<Unit>& units) {
  for (size_t i = 0; i < units.size();) {
    size_t end = i + 1;
    if (units[i].combining != 0) {
      while (end < units.size() && units[end].combining != 0) ++end;
      std::stable_sort(units.begin() + static_cast<std::ptrdiff_t>(i),
                       units.begin() + static_cast<std::ptrdiff_t>(end),
                       [](const Unit& a, const Unit& b) { return a.combining < b.combining; });
    }
    i = end;
  }
}

// Works in place and returns the new size. A mark composes with the last starter unless a kept mark of the
// same or a higher class stands between them.
size_t ComposeAll(std::vector<Unit>& units) {
  size_t size = 0;
  size_t starter = units.size();
  int last_class = -1;  // of the last unit kept after the starter, or -1
  for (const Unit unit : units) {
    if (starter < size && last_class < static_cast<int>(unit.combining)) {
      const uint32_t composed = Compose(units[starter].code, unit.code);
      if (composed != 0) {
        units[starter].code = composed;
        continue;
      }
    }
    if (unit.combining == 0) {
      starter = size;
      last_class = -1;
    } else {
      last_class = unit.combining;
    }
    units[size++] = unit;
  }
  return size;
}

void NormalizeValid(std::string_view text, std::string& out) {
  std::vector<Unit> units;
  for (size_t at = 0; at < text.size();) {
    const Char c = DecodeUtf8(text, at);
    Decompose(c.code, units);
    at += c.size;
  }
  OrderMarks(units);
  units.resize(ComposeAll(units));
  for (const Unit unit : units) AppendUtf8(unit.code, out);
}

}  // namespace

std::string NormalizeNfc(std::string_view text) {
  // The lead byte of U+0300 is 0xCC. Text without bytes from there on is in NFC already.
  if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0xCC; })) {
    return std::string(text);
  }
  std::string out;
  out.reserve(text.size());
  size_t valid_from = 0;
  for (size_t at = 0; at < text.size();) {
    const Char c = DecodeUtf8(text, at);
    if (c.code == kInvalidByte) {
      NormalizeValid(text.substr(valid_from, at - valid_from), out);
      out.push_back(text[at]);
      valid_from = at + 1;
    }
    at += c.size;
  }
  NormalizeValid(text.substr(valid_from), out);
  return out;
}

}  // namespace coppice
