// Embeddings of texts: the model's final hidden states, pooled over the text's tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace coppice {

enum class Pooling {
  kMean,  // the mean over all tokens
  kLast,  // the last token's state, which has attended to all others
  kNone,  // every token's own
};

// [hidden], or [tokens * hidden] for kNone, of final states [tokens, hidden] in fp32.
std::vector<float> Pool(const TensorView& states, Pooling pooling);

// Divides in place by a norm, as llama.cpp's embd_normalize: -1 does not divide; 0 scales the largest
// magnitude to 32760; 2 is the Euclidean norm; p > 0 the p-norm. Zeros stay zeros.
void Normalize(int norm, std::vector<float>& embedding);

}  // namespace coppice
