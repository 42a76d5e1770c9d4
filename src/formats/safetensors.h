// One safetensors file, from its bytes.
//
// Format: https://huggingface.co/docs/safetensors. A u64 length, a JSON header of that length, then the data;
// the header gives for each tensor its dtype, shape and [begin, end) in the data, and the extents cover the
// data exactly.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "formats/tensor_store.h"
#include "tensor/tensor.h"

namespace coppice {

struct ParsedSafetensors {
  // F32, F16 and BF16, in the order of their data.
  std::vector<StoredTensor> tensors;
  // The format aligns nothing but the start of the data, and that only by custom. A tensor whose bytes do not
  // lie on a multiple of its element size is copied here, the views of all others point into the bytes
  // parsed.
  std::vector<Tensor> copies;
  // Names of the tensors of other types: buffers such as masks and positions, which no model here reads.
  // Their extents are validated like the others.
  std::vector<std::string> skipped;
  // The strings of "__metadata__"; empty where there is none.
  std::map<std::string, std::string> metadata;
};

// `path` names the bytes in messages. Throws Error, naming the tensor and the cause.
ParsedSafetensors ParseSafetensors(std::span<const std::byte> bytes, const std::string& path);

}  // namespace coppice
