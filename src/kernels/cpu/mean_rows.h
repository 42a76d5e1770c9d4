// Backend::MeanRows on threads: each takes blocks of its own.
#pragma once

#include <cstdint>

#include "base/threads.h"
#include "kernels/cpu/kernel_table.h"
#include "tensor/tensor.h"

namespace coppice::cpu {

void MeanRows(const KernelTable& kernels, const ThreadPool& pool, const TensorView& x, int64_t block,
              MutableTensorView means);

}  // namespace coppice::cpu
