// Reads little-endian values from bytes that may be truncated anywhere.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/error.h"

namespace coppice {

static_assert(std::endian::native == std::endian::little, "model files are mapped as they are");

class GgufCursor {
 public:
  GgufCursor(std::span<const std::byte> bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  uint64_t position() const { return position_; }
  uint64_t left() const { return bytes_.size() - position_; }

  // `what` names the value in messages.
  template <typename T>
  T Read(std::string_view what) {
    static_assert(std::is_arithmetic_v<T>);
    Need(sizeof(T), what);
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  // Reads a length and that many bytes. The view points into the file.
  std::string_view String(std::string_view what) {
    const uint64_t length = Read<uint64_t>(what);
    Need(length, what);
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data() + position_), length);
    position_ += length;
    return text;
  }

  // Throws Error unless `count` more items of at least `item_bytes` each fit.
  void NeedItems(uint64_t count, uint64_t item_bytes, std::string_view what) const {
    if (count > left() / item_bytes) {
      Fail("{} {} need at least {} bytes each, {} bytes are left", count, what, item_bytes, left());
    }
  }

  template <typename... Args>
  [[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error("[gguf] {}: offset {}: {}", path_, position_,
                fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  void Need(uint64_t count, std::string_view what) const {
    if (count > left()) Fail("{} needs {} bytes, {} are left", what, count, left());
  }

  std::span<const std::byte> bytes_;
  const std::string& path_;
  uint64_t position_ = 0;
};

}  // namespace coppice
