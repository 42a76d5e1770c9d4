#include <immintrin.h>

#include "kernels/cpu/kernel_table.h"

namespace coppice::cpu {
namespace {
#include "kernels/cpu/avx512/vector.inl"

// On top of V, so after it.
#include "kernels/cpu/kernels.inl"
}  // namespace

const KernelTable& Avx512Kernels() { return kTable; }

}  // namespace coppice::cpu
