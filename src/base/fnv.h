// FNV-1a (Fowler, Noll and Vo), 64 bits: a hash for short texts where its value is kept in files or decides what a
// seed draws. Large contents go through base/checksum.h.
#pragma once

#include <cstdint>
#include <string_view>

namespace coppice {

inline constexpr uint64_t kFnvBasis = 0xCBF29CE484222325u;

// Of `text` behind whatever gave `hash`.
constexpr uint64_t Fnv1a(std::string_view text, uint64_t hash = kFnvBasis) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

}  // namespace coppice
