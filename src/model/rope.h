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
  double magnitude = 1;         // of cos and sin (yarn, longrope)
};

// Frequencies after scaling, for a prompt of `tokens`. `factors` ([dims / 2], or empty) divide them: GGUF
// files of Llama 3 have rope_freqs.weight in place of the llama3 parameters.
RopeFrequencies MakeRopeFrequencies(const RopeConfig& config, std::span<const float> factors,
                                    int64_t tokens = 0);

// cos and sin for positions [0, reached). Angles are taken in double precision: a float product is off by
// 4e-3 rad at position 65,536.
class RopeTables {
 public:
  RopeTables() = default;
  // In host memory, or in `memory`.
  RopeTables(RopeFrequencies frequencies, bool interleaved, DeviceMemory* memory = nullptr)
      : frequencies_(std::move(frequencies)), memory_(memory), interleaved_(interleaved) {}

  // Makes the table hold at least `positions` rows. It grows by at least half, because the length of an
  // answer is not known beforehand. Does nothing for a model without RoPE.
  void Reach(int64_t positions);
  RopeTable view() const { return {cos_.view(), sin_.view(), interleaved_}; }

 private:
  RopeFrequencies frequencies_;
  DeviceMemory* memory_ = nullptr;
  Tensor cos_;  // [reached, dims / 2]
  Tensor sin_;  // [reached, dims / 2]
  bool interleaved_ = false;
};

// Rotates rows [rows, heads * head_dim] that RoPE has rotated before, each by its offset in positions:
// rotations add up. The rows already include YaRN's factor on cosines and sines, so it is not applied again.
void RotateFurther(MutableTensorView rows, int head_dim, std::span<const int32_t> offsets,
                   const RopeTable& rope, Backend& be);

}  // namespace coppice
