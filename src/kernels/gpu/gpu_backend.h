// The backend of a CUDA device. Weights stay as the file has them, quantised ones as codes; products round
// their other factor to bf16 and sum in fp32. Keys and values are bf16 or Q8_0.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace coppice {

// Whether this program was built with kernels for CUDA devices. Without them MakeGpuBackend throws.
bool HasGpuKernels();

// Throws Error if there is no driver or device, and for options that need other arithmetic.
std::unique_ptr<Backend> MakeGpuBackend(const BackendOptions& options);

}  // namespace coppice
