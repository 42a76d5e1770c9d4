// Products of bf16 by NVIDIA's library, where it is installed. Its entry points are declared from its public
// documentation, as the driver's are.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "kernels/gpu/device.h"

namespace coppice::gpu {

// y [rows, outputs] (fp32) = x [rows, k] w [outputs, k]^T + bias, or adds this to y; x and w bf16, without
// gaps.
struct LtProduct {
  CUdeviceptr x = 0;
  CUdeviceptr w = 0;
  CUdeviceptr bias = 0;  // [outputs] fp32, or null
  CUdeviceptr y = 0;
  int64_t rows = 0;
  int64_t outputs = 0;
  int64_t k = 0;
  int64_t y_stride = 0;  // in values
  bool add = false;
};

class CublasLt {
 public:
  // Loads libcublasLt.so.13 or .12, or the library that COPPICE_CUBLASLT_LIBRARY names. Null if there is
  // none, and with COPPICE_CUBLASLT_LIBRARY=none. Throws Error if the library fails.
  static std::unique_ptr<CublasLt> Load(Device& device);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  // One algorithm for each shape of weight, whatever the rows: a row's sums must not depend on the other
  // rows. It is chosen for kRows rows, among those that do not split k. Throws Error if the library fails.
  void Multiply(const LtProduct& product);

  static constexpr int64_t kRows = 512;

 private:
  struct Functions;
  struct Problem;  // the library's descriptions of one product
  CublasLt(Device& device, const char* library);

  struct Algorithm {
    uint64_t data[8] = {};
  };
  const Algorithm& AlgorithmOf(const LtProduct& product);
  void Check(int status, const char* what) const;

  Device& device_;
  SharedLibrary library_;
  std::unique_ptr<Functions> functions_;
  void* handle_ = nullptr;
  CUdeviceptr workspace_ = 0;
  std::map<std::pair<int64_t, int64_t>, Algorithm> algorithms_;  // by outputs and k
};

}  // namespace coppice::gpu
