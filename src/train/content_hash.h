// A 64-bit hash that distinguishes models, texts and settings. Does not protect against deliberate
// collisions.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "formats/tensor_store.h"

namespace coppice {

class ContentHash {
 public:
  void Add(uint64_t word) { state_ = std::rotl((state_ ^ word) * 0x9e3779b97f4a7c15u, 29) ^ (state_ >> 32); }
  void Add(std::span<const std::byte> bytes) {
    Add(static_cast<uint64_t>(bytes.size()));
    for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data(), 8);
      Add(word);
    }
    uint64_t last = 0;
    std::memcpy(&last, bytes.data(), bytes.size());
    Add(last);
  }
  void Add(std::string_view text) { Add(std::as_bytes(std::span(text))); }
  void Add(double value) { Add(std::bit_cast<uint64_t>(value)); }

  uint64_t value() const { return state_ ^ (state_ >> 29); }
  // 16 hexadecimal digits.
  std::string Text() const;

 private:
  uint64_t state_ = 0x243f6a8885a308d3u;  // the first digits of pi
};

// The hash of the names, shapes, types and values of all tensors. Reads every value.
std::string HashOfModel(const TensorStore& store);

}  // namespace coppice
