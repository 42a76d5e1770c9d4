// GGUF v2 and v3: metadata and memory-mapped tensors, including split files.
//
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The reader trusts nothing in a file:
// before it allocates, it checks counts and lengths against the bytes left, and offsets against the file.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/mmap.h"
#include "formats/tensor_store.h"

namespace coppice {

// A metadata value. Integers of every width become int64_t, except u64; f32 becomes double. An array has one
// element type, as stored.
struct GgufArray;
using GgufValue =
    std::variant<bool, int64_t, uint64_t, double, std::string, std::shared_ptr<const GgufArray>>;
struct GgufArray {
  std::variant<std::vector<bool>, std::vector<int64_t>, std::vector<uint64_t>, std::vector<double>,
               std::vector<std::string>, std::vector<GgufValue>>
      items;          // the last alternative is for arrays of arrays
  uint32_t type = 0;  // the stored element type, in the format's numbering
  size_t size() const;
};

// Typed access to metadata. A value of the wrong type throws Error, naming the file and the key.
class GgufMetadata {
 public:
  GgufMetadata(std::string path, std::map<std::string, GgufValue, std::less<>> values);

  const std::string& path() const { return path_; }
  const std::map<std::string, GgufValue, std::less<>>& values() const { return values_; }
  bool Has(std::string_view key) const { return values_.find(key) != values_.end(); }
  bool IsArray(std::string_view key) const;  // false if the key is absent

  // nullopt if the key is absent; Error if its value has another type.
  std::optional<std::string> String(std::string_view key) const;
  std::optional<int64_t> Integer(std::string_view key) const;  // of any integer type, if the value fits
  std::optional<double> Number(std::string_view key) const;    // of any integer or float type
  std::optional<bool> Bool(std::string_view key) const;
  // Null or nullopt if the key is absent.
  const std::vector<std::string>* Strings(std::string_view key) const;
  std::optional<std::vector<bool>> Bools(std::string_view key) const;
  std::optional<std::vector<int64_t>> Integers(std::string_view key) const;
  std::optional<std::vector<double>> Floats(std::string_view key) const;  // float arrays only, not integers

 private:
  std::string path_;
  std::map<std::string, GgufValue, std::less<>> values_;
};

class GgufFile final : public TensorStore {
 public:
  // Opens `path` and, if it is the first of several splits (split.count > 1, name-00001-of-0000N.gguf), all
  // of them. Throws Error, naming the file, the offset, key or tensor, and the cause.
  static std::unique_ptr<GgufFile> Open(const std::string& path);

  const GgufMetadata& metadata() const { return metadata_; }
  uint32_t version() const { return version_; }

  const std::string& path() const override { return metadata_.path(); }
  const std::vector<StoredTensor>& tensors() const override { return tensors_; }
  const StoredTensor* Find(std::string_view name) const override;

 private:
  GgufFile(std::vector<MappedFile> files, uint32_t version, GgufMetadata metadata,
           std::vector<StoredTensor> tensors);
  std::vector<MappedFile> files_;
  uint32_t version_;
  GgufMetadata metadata_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
};

// Whether the file starts with the magic number of GGUF, in either byte order.
bool LooksLikeGguf(const std::string& path);

}  // namespace coppice
