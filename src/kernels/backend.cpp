#include "kernels/backend.h"

#include "base/error.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference_backend.h"

namespace coppice {

void Backend::AttentionWeights(const AttentionInput&, MutableTensorView) { COPPICE_CHECK(false); }
void Backend::SparseAttention(const AttentionInput&, const SparsePattern&, int64_t, MutableTensorView) {
  COPPICE_CHECK(false);
}

std::unique_ptr<Backend> MakeBackend(std::string_view name, const BackendOptions& options) {
  if (name == "reference") return MakeReferenceBackend();
  if (name == "cpu") return MakeCpuBackend(options);
  throw Error("[kernels] no backend '{}'; there are: cpu, reference", name);
}

}  // namespace coppice
