#include "kernels/gpu/driver.h"

#include <dlfcn.h>

#include <cstdlib>

#include "base/error.h"

namespace coppice::gpu {

namespace {

std::string DriverName() {
  const char* name = std::getenv("COPPICE_CUDA_LIBRARY");
  return name != nullptr && *name != '\0' ? name : "libcuda.so.1";
}

void* Opened(const std::string& name) { return dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE); }

}  // namespace

SharedLibrary::SharedLibrary(const std::string& name) : name_(name), handle_(Opened(name)) {
  if (handle_ == nullptr) throw Error("[gpu] cannot load {}: {}", name, dlerror());
}

std::optional<SharedLibrary> SharedLibrary::IfInstalled(const std::string& name) {
  if (void* handle = Opened(name)) return SharedLibrary(name, handle);
  // glibc begins with the file that it could not open, which may also be one that the library needs.
  const std::string why = dlerror();
  if (why.starts_with(name + ": cannot open shared object file: No such file")) return std::nullopt;
  throw Error("[gpu] cannot load {}: {}", name, why);
}

void* SharedLibrary::Get(const char* symbol) const {
  void* found = dlsym(handle_, symbol);
  if (found == nullptr) throw Error("[gpu] {} has no {}: it is too old", name_, symbol);
  return found;
}

Driver::Driver() : library_(DriverName()) {
#define COPPICE_BIND(name, symbol, parameters) \
  name = reinterpret_cast<CUresult(*) parameters>(library_.Get(symbol));
  COPPICE_CUDA_API(COPPICE_BIND)
#undef COPPICE_BIND
}

void Driver::Check(CUresult result, const char* what) const {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown error";
  if (cuGetErrorString(result, &text) != CUDA_SUCCESS || text == nullptr) text = "";
  throw Error("[gpu] {} failed: {} ({}) {}", what, name, result, text);
}

}  // namespace coppice::gpu
