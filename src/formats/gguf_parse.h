// Parses one GGUF file from its bytes, without access to the file system.
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
  std::vector<StoredTensor> tensors;  // in file order; the views point into the parsed bytes
};

// `path` names the bytes in messages. Takes time linear in the size of the metadata and does not read tensor
// data. Throws Error.
ParsedGguf ParseGguf(std::span<const std::byte> bytes, const std::string& path);

}  // namespace coppice
