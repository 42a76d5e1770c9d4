// Products of bf16 by NVIDIA's library, where it is installed. Its entry points are declared from its public
// documentation, as the driver's are.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "kernels/gpu/device.h"

namespace coppice::gpu {

// y [rows, outputs] (fp32) = x [rows, k] w [outputs, k]^T + bias, or adds this to y; x and w bf16, without
// gaps.
struct ProductCall {
  CUdeviceptr x = 0;
  CUdeviceptr bias = 0;  // [outputs] fp32, or null
  CUdeviceptr y = 0;
  int64_t rows = 0;
  int64_t outputs = 0;
  int64_t y_stride = 0;  // in values
  bool add = false;
};

class CublasLt {
 public:
  // What a bias must be aligned to: the kernels of the bias epilogue read four values at once.
  static constexpr CUdeviceptr kBiasAlignment = 16;

  // Loads libcublasLt.so.13 or .12, or the library that COPPICE_CUBLASLT_LIBRARY names. Null if neither of
  // the two is installed, and with COPPICE_CUBLASLT_LIBRARY=none. Throws Error if a library that is there
  // fails.
  static std::unique_ptr<CublasLt> Load(Device& device);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  size_t version() const;  // 130100: 13.1.0

  // `w` [outputs, k] is aligned to 256, and so is x. One algorithm for each form of product (FormOf),
  // whatever the rows: a row's sums must not depend on the other rows. It is chosen for kRows rows, among
  // those that do not split k. Throws Error if the library fails.
  void Multiply(const ProductCall& product, CUdeviceptr w, int64_t k);

  static constexpr int64_t kRows = 512;

 private:
  struct Functions;
  struct Problem;  // the library's descriptions of one product
  CublasLt(Device& device, SharedLibrary library);

  struct Algorithm {
    uint64_t data[8] = {};
  };
  // What the choice of an algorithm depends on.
  struct Form {
    int64_t outputs = 0;
    int64_t k = 0;
    bool biased = false;
    uint32_t y_alignment = 0;  // in bytes, of every row of y
    auto operator<=>(const Form&) const = default;
  };
  static Form FormOf(const ProductCall& product, int64_t k);
  const Algorithm& AlgorithmOf(const ProductCall& product, int64_t k);
  void Prefer(void* preference, const Form& form) const;
  void Check(int status, const char* what) const;

  Device& device_;
  SharedLibrary library_;
  std::unique_ptr<Functions> functions_;
  void* handle_ = nullptr;
  CUdeviceptr workspace_ = 0;
  std::map<Form, Algorithm> algorithms_;
};

}  // namespace coppice::gpu
