// The operands of one operation, wherever their views are.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "kernels/gpu/gpu.h"
#include "tensor/view.h"

namespace coppice::gpu {

// Holds the device for one operation. Views in host memory are copied to scratch memory; Finish copies
// outputs back, and waits for them. So an operation gives the same results wherever its operands are.
class Operands {
 public:
  explicit Operands(Gpu& gpu) : gpu_(gpu), lock_(gpu.device().mutex()), mark_(gpu.arena().mark()) {}
  ~Operands() { gpu_.arena().Release(mark_); }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  struct Place {
    CUdeviceptr address = 0;
    int64_t stride = 0;  // in elements of the view's type; in bytes for blocks
  };
  Place In(const TensorView& x);
  Place Out(const MutableTensorView& y);
  Place InOut(const MutableTensorView& y);
  CUdeviceptr List(std::span<const int32_t> list) { return List(std::as_bytes(list)); }
  CUdeviceptr List(std::span<const float> list) { return List(std::as_bytes(list)); }
  CUdeviceptr Scratch(int64_t bytes) { return gpu_.arena().Take(bytes); }
  // Call it once, after the last launch.
  void Finish();

 private:
  CUdeviceptr List(std::span<const std::byte> list);
  struct Output {
    MutableTensorView host;
    CUdeviceptr address;
  };
  Gpu& gpu_;
  std::unique_lock<std::recursive_mutex> lock_;
  Arena::Mark mark_;
  std::vector<Output> outputs_;
};

}  // namespace coppice::gpu
