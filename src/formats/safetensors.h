// Parses one safetensors file from its bytes.
//
// Format: https://huggingface.co/docs/safetensors. A u64 length, a JSON header of that length, then the data.
// For each tensor the header gives the dtype, the shape and [begin, end) in the data; together the tensors
// cover the data exactly.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "formats/tensor_store.h"
#include "tensor/tensor.h"

namespace coppice {

// A tensor of U8: of a quantised tensor in a form of its own, or a buffer.
struct ByteTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // of the file
};

struct ParsedSafetensors {
  // F32, F16 and BF16 tensors, in the order of their data.
  std::vector<StoredTensor> tensors;
  // Copies of misaligned tensors: the format does not align tensors, and only custom aligns the start of the
  // data. A tensor whose address is not a multiple of its element size is copied; the views of all others
  // point into the parsed bytes.
  std::vector<Tensor> copies;
  // The names of tensors of other types: buffers such as masks and positions, which no supported model reads.
  // Their extents are validated like the others.
  std::vector<std::string> skipped;
  std::vector<ByteTensor> bytes;  // those of `skipped` that are U8
  // The strings of "__metadata__"; empty if the file has none.
  std::map<std::string, std::string> metadata;
};

// `path` names the bytes in messages. Throws Error, naming the tensor and the cause.
ParsedSafetensors ParseSafetensors(std::span<const std::byte> bytes, const std::string& path);

}  // namespace coppice
