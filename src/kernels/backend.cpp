#include "kernels/backend.h"

#include "base/error.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference_backend.h"

namespace coppice {

std::unique_ptr<Backend> MakeBackend(std::string_view name, const BackendOptions& options) {
  if (name == "reference") return MakeReferenceBackend();
  if (name == "cpu") return MakeCpuBackend(options);
  throw Error("[kernels] no backend '{}'; there are: cpu, reference", name);
}

}  // namespace coppice
