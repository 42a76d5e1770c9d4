#include <immintrin.h>

#include "kernels/cpu/kernel_table.h"

namespace coppice::cpu {
namespace {
#include "kernels/cpu/avx512/vector.inl"

// 4 x 6 sums, 6 columns and 1 broadcast: 31 of the 32 registers.
constexpr int kPanelVectors = 6;

// Needs V and kPanelVectors.
#include "kernels/cpu/generic/kernels.inl"
}  // namespace

const KernelTable& Avx512Kernels() { return kTable; }

}  // namespace coppice::cpu
