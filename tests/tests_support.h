// What tests of several folders share.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "amx_emulator.h"
#include "base/cpu_info.h"
#include "base/error.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "test_files.h"

namespace coppice {

// A backend and how close to fp32 arithmetic it is: fp32 itself, or bf16 products and cache. Cases of "gpu"
// skip on a machine without one.
struct Arithmetic {
  const char* name;
  const char* backend;
  bool exact;
};
inline constexpr Arithmetic kArithmetics[] = {{"reference", "reference", true},
                                              {"cpu_exact", "cpu", true},
                                              {"cpu", "cpu", false},
                                              {"gpu", "gpu", false}};

// Null where COPPICE_ISA names an ISA that this CPU lacks, and for "gpu" on a machine without one. For tests
// that take too long to emulate.
inline std::unique_ptr<Backend> MakeNativeBackendOrSkip(const std::string& name,
                                                        const BackendOptions& options) {
  try {
    return MakeBackend(name, options);
  } catch (const Error& error) {
    const std::string what = error.what();
    if (what.find("this CPU has at most") != std::string::npos) return nullptr;
    // A driver that was named must work.
    if (what.starts_with("[gpu]") && std::getenv("COPPICE_CUDA_LIBRARY") == nullptr) return nullptr;
    throw;
  }
}

// Null where COPPICE_ISA names an ISA that this CPU lacks; any other error is an error. AMX is run through
// the emulator of its tile instructions where the CPU has all else that its kernels use.
inline std::unique_ptr<Backend> MakeBackendOrSkip(const std::string& name, const BackendOptions& options) {
  const char* forced = std::getenv("COPPICE_ISA");
  if (name == "cpu" && forced != nullptr && std::string(forced) == "amx" && Cpu().avx512_bf16) {
    InstallAmxEmulator();
    return MakeCpuBackendForIsa(options, Isa::kAmx);
  }
  return MakeNativeBackendOrSkip(name, options);
}

}  // namespace coppice
