// Rotary position embedding: the frequencies of a model, and the table of cosines and sines of a sequence.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "model/config.h"
#include "tensor/tensor.h"

namespace coppice {

struct RopeFrequencies {
  std::vector<double> inverse;  // [dims / 2] radians per position
  double magnitude = 1;         // of cos and sin (yarn)
};

// Frequencies after scaling. `factors` ([dims / 2], or empty) divides them: GGUF files of Llama 3 carry
// rope_freqs.weight in place of the llama3 parameters.
RopeFrequencies MakeRopeFrequencies(const RopeConfig& config, std::span<const float> factors);

// cos and sin for positions [0, reached). Angles are taken in double precision: a float product is off by
// 4e-3 rad at position 65,536.
class RopeTables {
 public:
  RopeTables() = default;
  RopeTables(RopeFrequencies frequencies, bool interleaved)
      : frequencies_(std::move(frequencies)), interleaved_(interleaved) {}

  // Makes the table hold at least `positions` rows; it grows by half at a time beyond what it holds, because
  // the length of an answer is not known beforehand. Does nothing for a model without RoPE.
  void Reach(int64_t positions);
  RopeTable view() const { return {cos_.view(), sin_.view(), interleaved_}; }

 private:
  RopeFrequencies frequencies_;
  Tensor cos_;  // [reached, dims / 2]
  Tensor sin_;  // [reached, dims / 2]
  bool interleaved_ = false;
};

}  // namespace coppice
