#include "kernels/cpu/kernel_table.h"
#include "tensor/dtype.h"

namespace coppice::cpu {
namespace {
#include "kernels/cpu/scalar/vector.inl"

constexpr int kPanelVectors = 4;

// Needs V and kPanelVectors.
#include "kernels/cpu/generic/kernels.inl"
}  // namespace

const KernelTable& ScalarKernels() { return kTable; }

}  // namespace coppice::cpu
