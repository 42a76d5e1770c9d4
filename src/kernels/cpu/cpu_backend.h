// The CPU backend: kernels for each instruction set, and one thread pool. kernel_table.h describes the
// instruction sets. Operations share scratch memory, so only one may run at a time; threads that run
// operations concurrently need a backend each.
#pragma once

#include <memory>

#include "base/cpu_info.h"
#include "kernels/backend.h"

namespace coppice {

// Uses the best instruction set of this CPU, or the one that COPPICE_ISA names (ChooseIsa).
std::unique_ptr<Backend> MakeCpuBackend(const BackendOptions& options);

// For tests only: uses the kernels of `isa` that a CPU with `features` has, whatever this CPU supports. The
// caller ensures that they can run: natively or, for AMX's tile instructions, through tests/amx_emulator.h.
std::unique_ptr<Backend> MakeCpuBackendForIsa(const BackendOptions& options, Isa isa,
                                              const CpuFeatures& features = Cpu());

}  // namespace coppice
