// The backend of ordinary CPUs: oneDNN for large fp32 products on AVX-512, kernels of its own for everything else, one
// pool of threads. See kernel_table.h for how an instruction set is chosen. A backend owns scratch that its
// operations share, so one caller at a time: sequences that run at once need a backend each.
#pragma once

#include <memory>

#include "base/cpu_info.h"
#include "kernels/backend.h"

namespace coppice {

// With the best instruction set of this CPU, or the one that COPPICE_ISA names (ChooseIsa).
std::unique_ptr<Backend> MakeCpuBackend(const BackendOptions& options);

// For tests only: with the kernels of `isa`, whatever the CPU has. The caller sees to it that it can execute
// them, natively or, for the tile instructions of AMX, through tests/amx_emulator.h.
std::unique_ptr<Backend> MakeCpuBackendForIsa(const BackendOptions& options, Isa isa);

}  // namespace coppice
