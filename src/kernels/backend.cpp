#include "kernels/backend.h"

#include "base/error.h"
#include "kernels/reference/reference_backend.h"

namespace coppice {

std::unique_ptr<Backend> MakeBackend(std::string_view name, [[maybe_unused]] const BackendOptions& options) {
  if (name == "reference") return MakeReferenceBackend();
  throw Error("[kernels] no backend '{}'; there is: reference", name);
}

}  // namespace coppice
