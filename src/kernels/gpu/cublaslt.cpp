#include "kernels/gpu/cublaslt.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "base/check.h"
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
// CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, and of B, C and D. Each is 256 unless it is set.
constexpr int kAlignmentA = 5;
constexpr int kAlignmentB = 6;
constexpr int kAlignmentC = 7;
constexpr int kAlignmentD = 8;
constexpr uint32_t kMostAlignment = 256;
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
  size_t (*version)();
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
  Problem(const CublasLt& lt, const ProductCall& p, int64_t k, int64_t rows) : f(*lt.functions_) {
    try {
      lt.Check(f.desc_create(&desc, kCompute32F, kTypeF32), "describing a product");
      lt.Check(f.desc_set(desc, kTransposeA, &kTranspose, sizeof(kTranspose)), "describing a product");
      if (p.bias != 0) {
        lt.Check(f.desc_set(desc, kEpilogue, &kBiasEpilogue, sizeof(kBiasEpilogue)), "describing a product");
        lt.Check(f.desc_set(desc, kBiasPointer, &p.bias, sizeof(p.bias)), "describing a product");
      }
      const auto inputs = static_cast<uint64_t>(k);
      const auto outputs = static_cast<uint64_t>(p.outputs);
      lt.Check(f.layout_create(&w, kTypeBf16, inputs, outputs, k), "describing a product");
      lt.Check(f.layout_create(&x, kTypeBf16, inputs, static_cast<uint64_t>(rows), k),
               "describing a product");
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
  if (named != nullptr && *named != '\0')
    return std::unique_ptr<CublasLt>(new CublasLt(device, SharedLibrary(named)));
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
    if (std::optional<SharedLibrary> library = SharedLibrary::IfInstalled(name))
      return std::unique_ptr<CublasLt>(new CublasLt(device, std::move(*library)));
  }
  return nullptr;  // the backend's own products do the same
}

CublasLt::CublasLt(Device& device, SharedLibrary library)
    : device_(device), library_(std::move(library)), functions_(std::make_unique<Functions>()) {
  Functions& f = *functions_;
  const auto bind = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library_.Get(symbol));
  };
  bind(f.version, "cublasLtGetVersion");
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
  const std::lock_guard lock(device_.mutex());
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

size_t CublasLt::version() const { return functions_->version(); }

// The alignment of y's rows, from the smaller of its begin's and its stride's: so it is the same for every
// part of a matrix's rows, and a row gets the same algorithm in any call.
CublasLt::Form CublasLt::FormOf(const ProductCall& product, int64_t k) {
  uint32_t alignment = kMostAlignment;
  while (product.y % alignment != 0 || product.y_stride * 4 % alignment != 0) alignment /= 2;
  return {product.outputs, k, product.bias != 0, alignment};
}

void CublasLt::Prefer(void* preference, const Form& form) const {
  const auto set = [&](int attribute, const auto& value) {
    Check(functions_->preference_set(preference, attribute, &value, sizeof(value)), "choosing an algorithm");
  };
  set(kWorkspaceBytes, static_cast<uint64_t>(kWorkspace));
  set(kReductions, uint32_t{0});
  set(kAlignmentA, kMostAlignment);
  set(kAlignmentB, kMostAlignment);
  set(kAlignmentC, form.y_alignment);
  set(kAlignmentD, form.y_alignment);
}

const CublasLt::Algorithm& CublasLt::AlgorithmOf(const ProductCall& product, int64_t k) {
  const Form form = FormOf(product, k);
  const auto known = algorithms_.find(form);
  if (known != algorithms_.end()) return known->second;
  const Functions& f = *functions_;
  const Problem problem(*this, product, k, kRows);
  void* created = nullptr;
  Check(f.preference_create(&created), "choosing an algorithm");
  const std::unique_ptr<void, int (*)(void*)> preference(created, f.preference_destroy);
  Prefer(preference.get(), form);
  Heuristic best = {};
  int found = 0;
  Check(f.heuristic(handle_, problem.desc, problem.w, problem.x, problem.y, problem.y, preference.get(), 1,
                    &best, &found),
        "choosing an algorithm");
  if (found == 0)
    throw Error("[gpu] {} has no algorithm for a weight [{}, {}]", library_.name(), product.outputs, k);
  Algorithm& algorithm = algorithms_[form];
  std::copy(std::begin(best.algorithm), std::end(best.algorithm), algorithm.data);
  return algorithm;
}

void CublasLt::Multiply(const ProductCall& p, CUdeviceptr w, int64_t k) {
  const std::lock_guard lock(device_.mutex());
  COPPICE_CHECK(w % kMostAlignment == 0 && p.x % kMostAlignment == 0 && p.bias % kBiasAlignment == 0);
  device_.Use();
  const Algorithm& algorithm = AlgorithmOf(p, k);
  const Problem problem(*this, p, k, p.rows);
  const float alpha = 1;
  const float beta = p.add ? 1 : 0;
  const auto at = [](CUdeviceptr address) { return reinterpret_cast<void*>(address); };
  Check(functions_->matmul(handle_, problem.desc, &alpha, at(w), problem.w, at(p.x), problem.x, &beta,
                           at(p.y), problem.y, at(p.y), problem.y, algorithm.data, at(workspace_),
                           static_cast<size_t>(kWorkspace), device_.stream()),
        "a product");
}

}  // namespace coppice::gpu
