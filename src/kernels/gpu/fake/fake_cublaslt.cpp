// cuBLASLt over the fake device: one algorithm, and products that wait on the stream as kernels do.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/gpu/cuda_api.h"
#include "kernels/gpu/fake/fake_device.h"
#include "tensor/dtype.h"

namespace {

using coppice::BF16;
using coppice::gpu::CUdeviceptr;
using coppice::gpu::CUstream;
using coppice::gpu::fake::CountObject;
using coppice::gpu::fake::Fails;
using coppice::gpu::fake::Submit;
using coppice::gpu::fake::UseBytes;

struct Desc {
  bool transposes_a = false;
  bool biased = false;
  CUdeviceptr bias = 0;
};
struct Layout {
  int type = 0;
  uint64_t rows = 0;
  uint64_t columns = 0;
  int64_t stride = 0;
};
struct Preference {
  bool splits = true;  // may split k, which would make a row's sums depend on the number of rows
  uint32_t alignment[4] = {256, 256, 256, 256};  // of a, b, c and d
};
struct Heuristic {
  uint64_t algorithm[8];
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

// What an algorithm was chosen for, and must be used for.
struct Algorithm {
  uint64_t magic = 0xC0BB1CE;
  uint64_t k = 0;
  uint64_t outputs = 0;
  uint32_t biased = 0;
  uint32_t alignment[4] = {};
  uint32_t unused = 0;
  uint64_t zeros[2] = {};
};
static_assert(sizeof(Algorithm) == sizeof(Heuristic::algorithm));
constexpr int kFailed = 14;  // CUBLAS_STATUS_INTERNAL_ERROR
constexpr int kInvalid = 7;  // CUBLAS_STATUS_INVALID_VALUE

float Widen(BF16 x) { return coppice::ToFloat(x); }

// Whether the algorithm was chosen for such a product, and its operands are aligned as was promised then. A
// real algorithm would compute garbage, or fault.
bool Suits(const void* algorithm, const Desc& product, const Layout& w, const Layout& y,
           std::array<const void*, 4> operands) {
  Algorithm chosen;
  std::memcpy(&chosen, algorithm, sizeof(chosen));
  const bool form = chosen.magic == Algorithm().magic && chosen.k == w.rows && chosen.outputs == w.columns &&
                    (chosen.biased != 0) == product.biased;
  bool aligned = 4 * static_cast<uint64_t>(y.stride) % chosen.alignment[3] == 0 && product.bias % 16 == 0;
  for (size_t i = 0; i < operands.size(); ++i)
    aligned = aligned && reinterpret_cast<uint64_t>(operands[i]) % chosen.alignment[i] == 0;
  return form && aligned;
}

}  // namespace

extern "C" {

size_t cublasLtGetVersion() { return 120000; }
int cublasLtCreate(void** handle) {
  if (Fails("cublasLtCreate")) return kFailed;
  *handle = new int(0);
  CountObject(1);
  return 0;
}
int cublasLtDestroy(void* handle) {
  if (Fails("cublasLtDestroy")) return kFailed;
  CountObject(-1);
  delete static_cast<int*>(handle);
  return 0;
}
int cublasLtMatmulDescCreate(void** desc, int compute, int scale) {
  if (Fails("cublasLtMatmulDescCreate")) return kFailed;
  if (compute != 68 || scale != 0) return kInvalid;
  *desc = new Desc;
  CountObject(1);
  return 0;
}
int cublasLtMatmulDescDestroy(void* desc) {
  if (Fails("cublasLtMatmulDescDestroy")) return kFailed;
  CountObject(-1);
  delete static_cast<Desc*>(desc);
  return 0;
}
int cublasLtMatmulDescSetAttribute(void* desc, int attribute, const void* value, size_t bytes) {
  if (Fails("cublasLtMatmulDescSetAttribute")) return kFailed;
  Desc& d = *static_cast<Desc*>(desc);
  int32_t number = 0;
  if (bytes == sizeof(number)) std::memcpy(&number, value, sizeof(number));
  if (attribute == 3 && number == 1) {
    d.transposes_a = true;
  } else if (attribute == 7 && number == 4) {
    d.biased = true;
  } else if (attribute == 8 && bytes == sizeof(d.bias)) {
    std::memcpy(&d.bias, value, sizeof(d.bias));
  } else {
    return kInvalid;
  }
  return 0;
}
int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t columns, int64_t stride) {
  if (Fails("cublasLtMatrixLayoutCreate")) return kFailed;
  if (stride < static_cast<int64_t>(rows)) return kInvalid;
  *layout = new Layout{type, rows, columns, stride};
  CountObject(1);
  return 0;
}
int cublasLtMatrixLayoutDestroy(void* layout) {
  if (Fails("cublasLtMatrixLayoutDestroy")) return kFailed;
  CountObject(-1);
  delete static_cast<Layout*>(layout);
  return 0;
}
int cublasLtMatmulPreferenceCreate(void** preference) {
  if (Fails("cublasLtMatmulPreferenceCreate")) return kFailed;
  *preference = new Preference;
  CountObject(1);
  return 0;
}
int cublasLtMatmulPreferenceDestroy(void* preference) {
  if (Fails("cublasLtMatmulPreferenceDestroy")) return kFailed;
  CountObject(-1);
  delete static_cast<Preference*>(preference);
  return 0;
}
int cublasLtMatmulPreferenceSetAttribute(void* preference, int attribute, const void* value, size_t bytes) {
  if (Fails("cublasLtMatmulPreferenceSetAttribute")) return kFailed;
  Preference& p = *static_cast<Preference*>(preference);
  if (attribute == 1) return bytes == sizeof(uint64_t) ? 0 : kInvalid;
  uint32_t number = 0;
  if (bytes != sizeof(number)) return kInvalid;
  std::memcpy(&number, value, sizeof(number));
  if (attribute == 3) {
    p.splits = number != 0;
  } else if (attribute >= 5 && attribute <= 8) {
    p.alignment[attribute - 5] = number;
  } else {
    return kInvalid;
  }
  return 0;
}
int cublasLtMatmulAlgoGetHeuristic(void* /*handle*/, void* desc, void* a, void* b, void* /*c*/, void* /*d*/,
                                   void* preference, int wanted, Heuristic* results, int* found) {
  if (Fails("cublasLtMatmulAlgoGetHeuristic")) return kFailed;
  if (wanted < 1 || static_cast<Preference*>(preference)->splits) return kInvalid;
  if (static_cast<Layout*>(b)->columns != 512) return kInvalid;  // always chosen for the same number of rows
  Algorithm algorithm;
  algorithm.k = static_cast<Layout*>(a)->rows;
  algorithm.outputs = static_cast<Layout*>(a)->columns;
  algorithm.biased = static_cast<Desc*>(desc)->biased ? 1 : 0;
  std::copy_n(static_cast<Preference*>(preference)->alignment, 4, algorithm.alignment);
  *results = {};
  std::memcpy(results->algorithm, &algorithm, sizeof(algorithm));
  *found = 1;
  return 0;
}
int cublasLtMatmul(void* /*handle*/, void* desc, const void* alpha, const void* a, void* a_layout,
                   const void* b, void* b_layout, const void* beta, const void* c, void* /*c_layout*/,
                   void* d, void* d_layout, const void* algorithm, void* workspace, size_t workspace_bytes,
                   CUstream stream) {
  if (Fails("cublasLtMatmul")) return kFailed;
  const Desc product = *static_cast<Desc*>(desc);
  const Layout w = *static_cast<Layout*>(a_layout);
  const Layout x = *static_cast<Layout*>(b_layout);
  const Layout y = *static_cast<Layout*>(d_layout);
  const bool shapes = w.rows == x.rows && w.columns == y.rows && x.columns == y.columns;
  const bool types = w.type == 14 && x.type == 14 && y.type == 0;
  if (!shapes || !types || !product.transposes_a || c != d || *static_cast<const float*>(alpha) != 1)
    return kInvalid;
  if (!Suits(algorithm, product, w, y, {a, b, c, d})) return kInvalid;
  const float add = *static_cast<const float*>(beta);
  const auto at = [](const void* address) { return reinterpret_cast<uint64_t>(address); };
  UseBytes(at(workspace), static_cast<int64_t>(workspace_bytes), "cublasLtMatmul: workspace");
  Submit(stream, "cublasLtMatmul", [=] {
    const auto k = static_cast<int64_t>(w.rows);
    for (int64_t i = 0; i < static_cast<int64_t>(y.columns); ++i) {
      const auto* row = reinterpret_cast<const BF16*>(
          UseBytes(at(b) + static_cast<uint64_t>(2 * i * x.stride), 2 * k, "x"));
      auto* out = reinterpret_cast<float*>(
          UseBytes(at(d) + static_cast<uint64_t>(4 * i * y.stride), 4 * static_cast<int64_t>(y.rows), "y"));
      for (int64_t j = 0; j < static_cast<int64_t>(y.rows); ++j) {
        const auto* weight = reinterpret_cast<const BF16*>(
            UseBytes(at(a) + static_cast<uint64_t>(2 * j * w.stride), 2 * k, "w"));
        float sum = 0;
        for (int64_t e = 0; e < k; ++e) sum += Widen(row[e]) * Widen(weight[e]);
        if (product.biased)
          sum += *reinterpret_cast<const float*>(
              UseBytes(product.bias + static_cast<uint64_t>(4 * j), 4, "bias"));
        out[j] = add != 0 ? sum + add * out[j] : sum;
      }
    }
  });
  return 0;
}

}  // extern "C"
