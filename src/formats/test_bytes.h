// For the tests of this folder: builds files byte by byte, without the writers, so that they can be invalid.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "formats/quants.h"
#include "formats/tensor_store.h"
#include "test_files.h"

namespace coppice {

class Bytes {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T> Bytes& Put(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  Bytes& U32(uint32_t value) { return Put(value); }
  Bytes& U64(uint64_t value) { return Put(value); }
  Bytes& Raw(std::string_view text) {
    text_ += text;
    return *this;
  }
  Bytes& String(std::string_view text) { return U64(text.size()).Raw(text); }
  Bytes& Zeros(size_t count) {
    text_.append(count, '\0');
    return *this;
  }
  Bytes& PadTo(size_t multiple) { return Zeros((multiple - text_.size() % multiple) % multiple); }

  // GGUF.
  Bytes& Head(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    return Raw("GGUF").U32(version).U64(tensors).U64(keys);
  }
  Bytes& KeyU32(std::string_view key, uint32_t value) { return String(key).U32(4).U32(value); }
  Bytes& Tensor(std::string_view name, std::initializer_list<uint64_t> innermost_first, uint32_t type,
                uint64_t offset) {
    String(name).U32(static_cast<uint32_t>(innermost_first.size()));
    for (const uint64_t d : innermost_first) U64(d);
    return U32(type).U64(offset);
  }

  const std::string& text() const { return text_; }
  std::span<const std::byte> span() const { return std::as_bytes(std::span(text_)); }

 private:
  std::string text_;
};

// Reads every value, to detect a view that leaves the file.
inline void ReadAllValues(const std::vector<StoredTensor>& tensors) {
  for (const StoredTensor& tensor : tensors) {
    std::vector<float> row(static_cast<size_t>(tensor.view.cols));
    for (int64_t i = 0; i < tensor.view.rows; ++i)
      DequantizeRow(tensor.view.dtype, tensor.view.RowBytes(i), row);
  }
}

}  // namespace coppice
