#include "kernels/gpu/cublaslt.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <string>
#include <type_traits>

#include "base/error.h"

namespace coppice::gpu {

namespace {

// Values of the library's enumerations.
constexpr int kCompute32F = 68;       // CUBLAS_COMPUTE_32F
constexpr int kTypeF32 = 0;           // CUDA_R_32F
constexpr int kTypeBf16 = 14;         // CUDA_R_16BF
constexpr int kTransposeA = 3;        // CUBLASLT_MATMUL_DESC_TRANSA
constexpr int kEpilogue = 7;          // CUBLASLT_MATMUL_DESC_EPILOGUE
constexpr int kBiasPointer = 8;       // CUBLASLT_MATMUL_DESC_BIAS_POINTER
constexpr int32_t kTranspose = 1;     // CUBLAS_OP_T
constexpr int32_t kBiasEpilogue = 4;  // CUBLASLT_EPILOGUE_BIAS
constexpr int kWorkspaceBytes = 1;    // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
constexpr int kReductions = 3;        // CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK
constexpr int64_t kWorkspace = int64_t{32} << 20;

// cublasLtMatmulHeuristicResult_t
struct Heuristic {
  uint64_t algorithm[8];
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

}  // namespace

struct CublasLt::Functions {
  int (*create)(void** handle);
  int (*destroy)(void* handle);
  int (*desc_create)(void** desc, int compute, int scale);
  int (*desc_destroy)(void* desc);
  int (*desc_set)(void* desc, int attribute, const void* value, size_t bytes);
  int (*layout_create)(void** layout, int type, uint64_t rows, uint64_t columns, int64_t stride);
  int (*layout_destroy)(void* layout);
  int (*preference_create)(void** preference);
  int (*preference_destroy)(void* preference);
  int (*preference_set)(void* preference, int attribute, const void* value, size_t bytes);
  int (*heuristic)(void* handle, void* desc, void* a, void* b, void* c, void* d, void* preference, int wanted,
                   Heuristic* results, int* found);
  int (*matmul)(void* handle, void* desc, const void* alpha, const void* a, void* a_layout, const void* b,
                void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                const void* algorithm, void* workspace, size_t workspace_bytes, CUstream stream);
};

// The library is column-major: y^T [outputs, rows] = w [k, outputs]^T x^T [k, rows].
struct CublasLt::Problem {
  Problem(const CublasLt& lt, const LtProduct& p, int64_t rows) : f(*lt.functions_) {
    try {
      lt.Check(f.desc_create(&desc, kCompute32F, kTypeF32), "describing a product");
      lt.Check(f.desc_set(desc, kTransposeA, &kTranspose, sizeof(kTranspose)), "describing a product");
      if (p.bias != 0) {
        lt.Check(f.desc_set(desc, kEpilogue, &kBiasEpilogue, sizeof(kBiasEpilogue)), "describing a product");
        lt.Check(f.desc_set(desc, kBiasPointer, &p.bias, sizeof(p.bias)), "describing a product");
      }
      const auto k = static_cast<uint64_t>(p.k);
      const auto outputs = static_cast<uint64_t>(p.outputs);
      lt.Check(f.layout_create(&w, kTypeBf16, k, outputs, p.k), "describing a product");
      lt.Check(f.layout_create(&x, kTypeBf16, k, static_cast<uint64_t>(rows), p.k), "describing a product");
      lt.Check(f.layout_create(&y, kTypeF32, outputs, static_cast<uint64_t>(rows), p.y_stride),
               "describing a product");
    } catch (...) {
      Destroy();
      throw;
    }
  }
  ~Problem() { Destroy(); }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;
  void Destroy() {
    for (void* layout : {w, x, y}) {
      if (layout != nullptr) f.layout_destroy(layout);
    }
    if (desc != nullptr) f.desc_destroy(desc);
  }

  const Functions& f;
  void* desc = nullptr;
  void* w = nullptr;
  void* x = nullptr;
  void* y = nullptr;
};

std::unique_ptr<CublasLt> CublasLt::Load(Device& device) {
  const char* named = std::getenv("COPPICE_CUBLASLT_LIBRARY");
  if (named != nullptr && std::string(named) == "none") return nullptr;
  if (named != nullptr && *named != '\0') return std::unique_ptr<CublasLt>(new CublasLt(device, named));
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
    try {
      return std::unique_ptr<CublasLt>(new CublasLt(device, name));
    } catch (const Error&) {  // absent; the backend's own products do the same
    }
  }
  return nullptr;
}

CublasLt::CublasLt(Device& device, const char* library)
    : device_(device), library_(library), functions_(std::make_unique<Functions>()) {
  Functions& f = *functions_;
  const auto bind = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library_.Get(symbol));
  };
  bind(f.create, "cublasLtCreate");
  bind(f.destroy, "cublasLtDestroy");
  bind(f.desc_create, "cublasLtMatmulDescCreate");
  bind(f.desc_destroy, "cublasLtMatmulDescDestroy");
  bind(f.desc_set, "cublasLtMatmulDescSetAttribute");
  bind(f.layout_create, "cublasLtMatrixLayoutCreate");
  bind(f.layout_destroy, "cublasLtMatrixLayoutDestroy");
  bind(f.preference_create, "cublasLtMatmulPreferenceCreate");
  bind(f.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  bind(f.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  bind(f.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  bind(f.matmul, "cublasLtMatmul");
  device_.Use();
  Check(f.create(&handle_), "starting the library");
  try {
    workspace_ = device_.Allocate(kWorkspace);
  } catch (...) {
    f.destroy(handle_);
    throw;
  }
}

CublasLt::~CublasLt() {
  device_.Free(workspace_);
  functions_->destroy(handle_);
}

void CublasLt::Check(int status, const char* what) const {
  if (status != 0) throw Error("[gpu] {}: {} failed with status {}", library_.name(), what, status);
}

const CublasLt::Algorithm& CublasLt::AlgorithmOf(const LtProduct& product) {
  const std::pair shape(product.outputs, product.k);
  const auto known = algorithms_.find(shape);
  if (known != algorithms_.end()) return known->second;
  const Functions& f = *functions_;
  const Problem problem(*this, product, kRows);
  void* preference = nullptr;
  Check(f.preference_create(&preference), "choosing an algorithm");
  Heuristic best = {};
  int found = 0;
  const auto workspace = static_cast<uint64_t>(kWorkspace);
  const uint32_t no_reduction = 0;
  int status = f.preference_set(preference, kWorkspaceBytes, &workspace, sizeof(workspace));
  if (status == 0) status = f.preference_set(preference, kReductions, &no_reduction, sizeof(no_reduction));
  if (status == 0)
    status = f.heuristic(handle_, problem.desc, problem.w, problem.x, problem.y, problem.y, preference, 1,
                         &best, &found);
  f.preference_destroy(preference);
  Check(status, "choosing an algorithm");
  if (found == 0)
    throw Error("[gpu] {} has no algorithm for a weight [{}, {}]", library_.name(), product.outputs,
                product.k);
  Algorithm& algorithm = algorithms_[shape];
  std::copy(std::begin(best.algorithm), std::end(best.algorithm), algorithm.data);
  return algorithm;
}

void CublasLt::Multiply(const LtProduct& p) {
  const std::lock_guard lock(device_.mutex());
  device_.Use();
  const Algorithm& algorithm = AlgorithmOf(p);
  const Problem problem(*this, p, p.rows);
  const float alpha = 1;
  const float beta = p.add ? 1 : 0;
  const auto at = [](CUdeviceptr address) { return reinterpret_cast<void*>(address); };
  Check(functions_->matmul(handle_, problem.desc, &alpha, at(p.w), problem.w, at(p.x), problem.x, &beta,
                           at(p.y), problem.y, at(p.y), problem.y, algorithm.data, at(workspace_),
                           static_cast<size_t>(kWorkspace), device_.stream()),
        "a product");
}

}  // namespace coppice::gpu
