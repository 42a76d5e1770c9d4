#include "kernels/cpu/mean_rows.h"

#include <algorithm>
#include <span>
#include <vector>

#include "kernels/op_checks.h"

namespace coppice::cpu {

void MeanRows(const KernelTable& kernels, const ThreadPool& pool, const TensorView& x, int64_t block,
              MutableTensorView means) {
  CheckMeanRows(x, block, means);
  const bool plain = x.dtype == DType::kF32;
  const auto dequantize = kernels.dequantize[static_cast<size_t>(x.dtype)];
  pool.For(means.rows, 1, [&](int64_t begin, int64_t end, int) {
    std::vector<float> row(static_cast<size_t>(plain ? 0 : x.cols));
    for (int64_t u = begin; u < end; ++u) {
      const std::span<float> mean = means.Row<float>(u);
      std::fill(mean.begin(), mean.end(), 0.0f);
      const int64_t last = std::min((u + 1) * block, x.rows);
      for (int64_t i = u * block; i < last; ++i) {
        if (!plain) dequantize(x.RowBytes(i), x.cols, row.data());
        kernels.add(plain ? x.Row<float>(i).data() : row.data(), x.cols, mean.data());
      }
      for (float& m : mean) m /= static_cast<float>(last - u * block);
    }
  });
}

}  // namespace coppice::cpu
