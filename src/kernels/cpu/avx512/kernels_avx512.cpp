#include <immintrin.h>

#include "kernels/cpu/kernel_table.h"

namespace coppice::cpu {
namespace {
#include "kernels/cpu/avx512/vector.inl"

// Needs V.
#include "kernels/cpu/generic/kernels.inl"
}  // namespace

const KernelTable& Avx512Kernels() { return kTable; }

}  // namespace coppice::cpu
