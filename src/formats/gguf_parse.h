// One GGUF file, from its bytes: the part of the reader that never touches the file system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/tensor_store.h"

namespace coppice {

struct ParsedGguf {
  uint32_t version = 0;
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<StoredTensor> tensors;  // in the order of the file; the views point into the bytes parsed
};

// `path` names the bytes in messages. Linear in the size of the metadata; tensor data is not read. Throws
// Error.
ParsedGguf ParseGguf(std::span<const std::byte> bytes, const std::string& path);

}  // namespace coppice
