// A file mapped read-only into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace coppice {

// Owns the mapping. The pages are private and read-only. Throws Error with the path and the system's reason
// if the file cannot be opened, is not a regular file, or cannot be mapped.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  std::string path_;
  void* data_ = nullptr;  // null for an empty file
  size_t size_ = 0;
};

}  // namespace coppice
