// Backend::Recur and Backend::Convolve on threads.
#pragma once

#include <cstdint>
#include <span>

#include "base/threads.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/recurrence.h"
#include "tensor/tensor.h"

namespace coppice::cpu {

// Owns scratch memory, which grows to the largest call and is then reused.
class RecurrenceOps {
 public:
  RecurrenceOps(const KernelTable& kernels, const ThreadPool& pool)
      : kernels_(kernels.recurrence), pool_(pool) {}

  void Recur(const RecurrenceShape& shape, const RecurrenceWeights& weights,
             std::span<const RecurrenceRows> sequences);
  void Convolve(const TensorView& x, const TensorView& before, const Convolution& by,
                MutableTensorView y) const;

 private:
  // Fills factors_ for the rows of all sequences.
  void FindFactors(const RecurrenceShape& shape, const RecurrenceWeights& weights,
                   std::span<const RecurrenceRows> sequences, std::span<const int64_t> first_rows);

  const RecurrenceKernels& kernels_;
  const ThreadPool& pool_;
  Tensor factors_;  // [rows of all sequences, decay and strength by value head, then k's and q's by key head]
  Tensor states_;   // [threads, key_dim * kStateColumns]
};

}  // namespace coppice::cpu
