// What the fake driver offers to the fake libraries over it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "kernels/gpu/cuda_api.h"
#include "kernels/gpu/fake/fake_memory.h"

namespace coppice::gpu::fake {

// Appends work to a stream. `kind` as in a graph: works of the same kinds in order make graphs of one shape.
void Submit(CUstream stream, std::string kind, std::function<void()> run);
// Counts the call, and returns true if it is the one that shall fail.
bool Fails(const char* name);
// Counts objects that were made, or destroyed (-1).
void CountObject(int64_t more);
// Bytes of device memory, which must be one allocation's.
std::byte* UseBytes(uint64_t address, int64_t bytes, const char* what);

}  // namespace coppice::gpu::fake
