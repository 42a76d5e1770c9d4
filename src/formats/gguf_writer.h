// Writes GGUF v3 files that other engines can open too (for `coppice synth` and tests).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace coppice {

// Collects metadata and tensor descriptions, then streams the tensors to the file: only the current tensor is
// in memory. The file appears under its name once it is complete (written beside, then renamed); an error
// leaves nothing behind.
class GgufWriter {
 public:
  void Add(const std::string& key, const std::string& value);
  void Add(const std::string& key, const char* value) { Add(key, std::string(value)); }
  void Add(const std::string& key, uint32_t value);
  void Add(const std::string& key, float value);
  void Add(const std::string& key, bool value);
  void Add(const std::string& key, const std::vector<std::string>& value);
  void Add(const std::string& key, const std::vector<float>& value);
  void Add(const std::string& key, const std::vector<int32_t>& value);
  void Add(const std::string& key, const std::vector<bool>& value);

  // `shape` is outermost first ([outputs, inputs]). Write calls `fill` once, with the tensor's bytes.
  void AddTensor(const std::string& name, DType type, std::vector<int64_t> shape,
                 std::function<void(std::span<std::byte>)> fill);

  // Throws Error if the file cannot be written (disk full, no permission).
  void Write(const std::string& path) const;

 private:
  struct Tensor {
    std::string name;
    DType type;
    std::vector<int64_t> shape;
    std::function<void(std::span<std::byte>)> fill;
  };
  std::string metadata_;  // encoded key-value pairs
  uint64_t keys_ = 0;
  std::vector<Tensor> tensors_;
};

}  // namespace coppice
