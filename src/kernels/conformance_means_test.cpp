// Means of blocks of rows on every backend, bit for bit.
#include "kernels/conformance_support.h"

namespace coppice {
namespace {

using namespace testing_kernels;

class MeansConformance : public ConformanceTest {};

// The same bits on every backend: one order of sums. The last block has 2 of 8 rows; a view of some columns
// has a stride of its own.
TEST_P(MeansConformance, MeanRowsOfEveryCacheType) {
  for (DType type : {DType::kF32, DType::kBF16, DType::kF16, DType::kQ8_0}) {
    Tensor x(type, 2050, 160);
    const Tensor plain = Random(2050, 160, 1, 10);
    MakeBackend("reference", {})->Convert(plain.view(), x.mutable_view());
    const int64_t first = type == DType::kQ8_0 ? 0 : 64;
    const TensorView some = type == DType::kQ8_0 ? x.view() : x.view().Cols(first, 96);
    for (const int64_t block : {8, 2050, 4000}) {
      Tensor means(DType::kF32, (2050 + block - 1) / block, some.cols);
      be().MeanRows(some, block, means.mutable_view());
      std::vector<float> row(static_cast<size_t>(some.cols));
      for (int64_t u = 0; u < means.rows(); ++u) {
        std::vector<float> sum(row.size(), 0.0f);
        const int64_t end = std::min<int64_t>((u + 1) * block, 2050);
        for (int64_t i = u * block; i < end; ++i) {
          DequantizeRow(type, some.RowBytes(i), row);
          for (size_t c = 0; c < row.size(); ++c) sum[c] += row[c];
        }
        for (size_t c = 0; c < row.size(); ++c)
          ASSERT_EQ(means.view().Row<float>(u)[c], sum[c] / static_cast<float>(end - u * block))
              << u << " " << c;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, MeansConformance, ::testing::ValuesIn(kConfigs), ConfigName);

}  // namespace
}  // namespace coppice
