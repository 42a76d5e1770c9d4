// The tables of unicode_data.cpp, which tools/gen_unicode_ranges.py writes. Read them through text/unicode.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace coppice {

// The canonical decomposition of a code point into one or two others (`second` is 0 for one). Bit 31 of
// `code` is set if NFC composes the pair.
struct Decomposition {
  uint32_t code;
  uint32_t first;
  uint32_t second;
};

extern const uint32_t kCategoryRuns[];  // first code point << 5 | Category, ascending
extern const size_t kCategoryRunsSize;
extern const uint32_t kCombiningRuns[];  // first code point << 8 | combining class, ascending
extern const size_t kCombiningRunsSize;
extern const Decomposition kDecompositions[];  // ascending by code point
extern const size_t kDecompositionsSize;

}  // namespace coppice
