// FNV-1a (Fowler, Noll, Vo), 64 bits: a hash for short texts whose value is stored in files or seeds a random
// choice, and so must never change. Large contents use base/checksum.h.
#pragma once

#include <cstdint>
#include <string_view>

namespace coppice {

inline constexpr uint64_t kFnvBasis = 0xCBF29CE484222325u;

// Hashes `text`, continuing from `hash`, the value of the text before it.
constexpr uint64_t Fnv1a(std::string_view text, uint64_t hash = kFnvBasis) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

}  // namespace coppice
