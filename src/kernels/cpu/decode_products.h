// Products of a decode step: few rows of x, and weights as stored, whose way from memory takes most of the
// time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/threads.h"
#include "kernels/backend.h"
#include "kernels/cpu/int_dot.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/row_shares.h"
#include "tensor/tensor.h"

namespace coppice::cpu {

class DecodeProductOps {
 public:
  // `int_dots` may be null: then products with quantised weights stay in fp32. `ahead` is that of IntDotTask.
  // The references must outlive this object.
  DecodeProductOps(const KernelTable& kernels, const IntDotKernels* int_dots, int64_t ahead,
                   const ThreadPool& pool)
      : kernels_(kernels), int_dots_(int_dots), ahead_(ahead), pool_(pool), shares_(pool.size()) {}

  // Backend::DecodeProducts. The threads start once for the inputs of all products and once for the weights.
  void Run(std::span<const DecodeTask> tasks);

 private:
  // How a product's kernel reads x.
  struct Form {
    bool codes = false;
    DotLayout layout = {};                                     // of codes
    void (*arrange)(const float*, int64_t, float*) = nullptr;  // of floats; null: as they are
    bool operator==(const Form&) const = default;
  };
  struct Input {
    TensorView x;
    Form form;
    int64_t begin;  // in codes_ or arranged_
  };

  Form FormOf(DType weights) const;
  // The input of a product: one for all that read the same rows in the same form.
  size_t InputOf(const DecodeTask& task);
  void PrepareInputs();
  void PrepareRow(const Input& input, int64_t row);
  // Computes outputs [begin, end) of the task.
  void RunRows(const DecodeTask& task, const Input& input, int64_t begin, int64_t end) const;

  const KernelTable& kernels_;
  const IntDotKernels* int_dots_;
  const int64_t ahead_;
  const ThreadPool& pool_;
  RowShares shares_;
  std::vector<Input> inputs_;
  std::vector<size_t> input_of_;  // [tasks]
  std::vector<DotGroup> codes_;   // of all inputs that are read as codes
  Tensor arranged_;               // [1, floats] of all that are read in another order; vectors load it
};

}  // namespace coppice::cpu
