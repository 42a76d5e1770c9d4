#include <immintrin.h>

#include "kernels/cpu/kernel_table.h"

namespace coppice::cpu {
namespace {
#include "kernels/cpu/avx2/vector.inl"

// 4 x 3 sums, 3 columns and 1 broadcast fill the 16 registers.
constexpr int kPanelVectors = 3;

// Needs V and kPanelVectors.
#include "kernels/cpu/generic/kernels.inl"
}  // namespace

const KernelTable& Avx2Kernels() { return kTable; }

}  // namespace coppice::cpu
