// The CUDA driver, loaded when the backend is asked for, so that one program runs with and without one.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "kernels/gpu/cuda_api.h"

namespace coppice::gpu {

// A shared library that dlopen has loaded. It stays loaded: a driver keeps threads of its own.
class SharedLibrary {
 public:
  // Throws Error, with dlopen's text, if it cannot be loaded.
  explicit SharedLibrary(const std::string& name);
  // Nothing if there is no file of this name. Throws Error if there is one that cannot be loaded.
  static std::optional<SharedLibrary> IfInstalled(const std::string& name);

  const std::string& name() const { return name_; }
  // Throws Error if the library lacks the symbol.
  void* Get(const char* symbol) const;

 private:
  SharedLibrary(const std::string& name, void* handle) : name_(name), handle_(handle) {}
  std::string name_;
  void* handle_;
};

// The entry points, as pointers of the same names. Check() turns what they return into errors.
class Driver {
 public:
  // Loads libcuda.so.1, or the library that COPPICE_CUDA_LIBRARY names. Throws Error if it or one of the
  // entry points is absent.
  Driver();

#define COPPICE_DECLARE(name, symbol, parameters) CUresult(*name) parameters = nullptr;
  COPPICE_CUDA_API(COPPICE_DECLARE)
#undef COPPICE_DECLARE

  // Throws Error, with the driver's name and text of the error, if `result` is one. `what` says what failed.
  void Check(CUresult result, const char* what) const;
  const SharedLibrary& library() const { return library_; }

 private:
  SharedLibrary library_;
};

}  // namespace coppice::gpu
