// MXFP4 in Hugging Face folders, as gpt-oss's checkpoints store it: a tensor X is two tensors of bytes,
//   X_blocks [..., outputs, inputs / 32, 16]   two codes of E2M1 in a byte, the first in its low half
//   X_scales [..., outputs, inputs / 32]       exponents of two, plus 127
// (OCP Microscaling Formats 1.0; transformers, integrations/mxfp4.py).
#pragma once

#include <string>
#include <vector>

#include "formats/safetensors.h"
#include "formats/tensor_store.h"
#include "tensor/tensor.h"

namespace coppice {

// A tensor X [..., outputs, inputs] in GGUF's blocks for each pair of `bytes`, copied to `copies`. Other
// tensors of bytes give none. Throws Error, naming file and tensors, if the shapes of a pair do not fit each
// other.
std::vector<StoredTensor> JoinMxfp4(const std::vector<ByteTensor>& bytes, const std::string& path,
                                    std::vector<Tensor>& copies);

}  // namespace coppice
