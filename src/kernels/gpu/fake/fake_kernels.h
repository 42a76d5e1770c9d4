// What the fake device computes for each kernel: the operation of its name, from the buffers that it was
// given.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/gpu/fake/fake_memory.h"

namespace coppice::gpu::fake {

inline constexpr int64_t kAny = -1;  // of a grid's axis: as it is

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// One launch: the grid, and the arguments by the names of the kernel's list (kernels/README.md).
class KernelCall {
 public:
  // Reads the arguments as the driver does. `arguments` as in kernels/README.md: "x:f32* n:i32! scale:f32".
  KernelCall(std::string_view kernel, std::string_view arguments, const unsigned* grid, void** parameters,
             DeviceBytes& memory);

  int64_t grid(int axis) const { return grid_[axis]; }
  // Faults unless the grid is this one, as in kernels/README.md. kAny where a kernel takes the axis as it is.
  void CheckGrid(int64_t x, int64_t y = 1, int64_t z = 1) const;
  int64_t I(std::string_view name) const;
  float F(std::string_view name) const;
  // An argument that is read often.
  struct Pointer {
    uint64_t address = 0;
    std::string_view name;
  };
  Pointer At(std::string_view name) const { return {Find(name).address, name}; }
  // `count` elements from `offset` on; faults if they are not the device's.
  template <typename T>
  T* P(const Pointer& pointer, int64_t count, int64_t offset = 0) const {
    constexpr auto kSize = static_cast<int64_t>(sizeof(T));
    return reinterpret_cast<T*>(memory_.Use(pointer.address + static_cast<uint64_t>(offset * kSize),
                                            count * kSize, kernel_, pointer.name));
  }
  template <typename T>
  T* P(std::string_view name, int64_t count, int64_t offset = 0) const {
    return P<T>(At(name), count, offset);
  }

 private:
  struct Argument {
    bool pointer = false;
    uint64_t address = 0;
    int64_t integer = 0;
    float number = 0;
  };
  const Argument& Find(std::string_view name) const;

  std::string kernel_;
  int64_t grid_[3];
  DeviceBytes& memory_;
  std::map<std::string, Argument, std::less<>> arguments_;
};

struct FakeKernel {
  const char* name;
  const char* arguments;  // as in kernels/README.md
  int warps;
  void (*run)(const KernelCall&);
};

// Those of fake_rows.cpp, fake_products.cpp, fake_attention.cpp and fake_scores.cpp.
std::span<const FakeKernel> RowKernels();
std::span<const FakeKernel> ProductKernels();
std::span<const FakeKernel> AttentionKernels();
std::span<const FakeKernel> ScoreKernels();
std::vector<FakeKernel> AllKernels();

}  // namespace coppice::gpu::fake
