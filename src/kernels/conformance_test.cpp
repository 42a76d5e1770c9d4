// Products of every backend, against fp64 and, bit for bit, between calls with different rows.
#include <fmt/core.h>

#include "kernels/conformance_support.h"

namespace coppice {
namespace {

using namespace testing_kernels;

class ProductConformance : public ConformanceTest {
 protected:
  Tensor Prefill(const TensorView& x, const TensorView& w, const TensorView& bias = {}) {
    PackedMatrix packed;
    be().Pack(w, packed);
    Tensor y(DType::kF32, x.rows, w.rows);
    be().Product(x, packed, bias, y.mutable_view());
    return y;
  }
  Tensor Decode(const TensorView& x, const TensorView& w, const TensorView& bias = {}) {
    Tensor y(DType::kF32, x.rows, w.rows);
    be().DecodeProduct(x, w, bias, y.mutable_view());
    return y;
  }
};

Matrix NaiveProduct(const TensorView& x, const TensorView& w, const TensorView& bias) {
  const Matrix a = ToMatrix(x);
  const Matrix b = ToMatrix(w);
  Matrix y(a.size(), std::vector<double>(b.size()));
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < b.size(); ++j) {
      double sum = bias.empty() ? 0 : bias.Row<float>(0)[j];
      for (size_t k = 0; k < a[i].size(); ++k) sum += a[i][k] * b[j][k];
      y[i][j] = sum;
    }
  }
  return y;
}

const std::vector<DType> kTypes = {
    DType::kF32,   DType::kF16,     DType::kBF16,  DType::kQ4_0,   DType::kQ4_1,    DType::kQ5_0,
    DType::kQ5_1,  DType::kQ8_0,    DType::kQ2_K,  DType::kQ3_K,   DType::kQ4_K,    DType::kQ5_K,
    DType::kQ6_K,  DType::kIQ4_NL,  DType::kMXFP4, DType::kIQ4_XS, DType::kIQ2_XXS, DType::kIQ2_XS,
    DType::kIQ2_S, DType::kIQ3_XXS, DType::kIQ3_S};

struct ProductShape {
  int64_t rows, inputs, outputs;
};
const std::vector<ProductShape> kProductShapes = {
    {4, 1, 5},    {5, 7, 9},     {9, 33, 31},    {1, 32, 16},    {2, 64, 17},  {3, 96, 5},    {1, 256, 64},
    {7, 256, 33}, {33, 256, 64}, {65, 512, 100}, {130, 544, 67}, {16, 768, 8}, {300, 256, 49}};

TEST_P(ProductConformance, EveryTypeAndShapeMatchesFp64) {
  for (DType type : kTypes) {
    for (const ProductShape& s : kProductShapes) {
      if (s.inputs % Info(type).block_elements != 0) continue;
      SCOPED_TRACE(std::string(Info(type).name) + " " + std::to_string(s.rows) + "x" +
                   std::to_string(s.inputs) + "x" + std::to_string(s.outputs));
      const Tensor x = Random(s.rows, s.inputs, 1);
      const Tensor w = RandomWeight(type, s.outputs, s.inputs, 2);
      const Tensor b = Random(1, s.outputs, 3);
      const TensorView bias = s.rows % 2 == 0 ? b.view() : TensorView();
      const Matrix expected = NaiveProduct(x.view(), w.view(), bias);
      ExpectClose(Prefill(x.view(), w.view(), bias), expected, tolerance());
      ExpectClose(Decode(x.view(), w.view(), bias), expected, tolerance());
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(ProductConformance, RowsOfWiderMatrices) {  // x, w and y are columns of a fused matrix
  const Tensor x = Random(9, 3 * 64, 1);
  const Tensor w = Random(20, 3 * 64, 2, 0.1f);
  const Matrix expected = NaiveProduct(x.view().Cols(64, 64), w.view().Cols(64, 64), {});
  for (bool decode : {false, true}) {
    Tensor y = Random(9, 50, 3);
    const Tensor before = y.Clone();
    const MutableTensorView out = y.mutable_view().Cols(10, 20);
    PackedMatrix packed;
    be().Pack(w.view().Cols(64, 64), packed);
    if (decode) be().DecodeProduct(x.view().Cols(64, 64), w.view().Cols(64, 64), {}, out);
    if (!decode) be().Product(x.view().Cols(64, 64), packed, {}, out);
    ExpectClose(out, expected, tolerance());
    EXPECT_TRUE(SameBits(y.view().Cols(0, 10), before.view().Cols(0, 10)));
    EXPECT_TRUE(SameBits(y.view().Cols(30, 20), before.view().Cols(30, 20)));
  }
}

TEST_P(ProductConformance, ARowIsTheSameInAnyCompany) {
  for (DType type : {DType::kF32, DType::kBF16, DType::kF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_K,
                     DType::kQ6_K, DType::kIQ2_S, DType::kIQ3_S}) {
    for (int64_t inputs : {256, 1280}) {
      const Tensor x = Random(300, inputs, 4);
      const Tensor w = RandomWeight(type, 80, inputs, 5);
      for (bool decode : {false, true}) {
        SCOPED_TRACE(std::string(Info(type).name) + (decode ? " decode" : " prefill"));
        const auto product = [&](const TensorView& rows) {
          return decode ? Decode(rows, w.view()) : Prefill(rows, w.view());
        };
        const Tensor all = product(x.view());
        for (int64_t begin : {0, 5, 131, 293}) {
          for (int64_t count : {1, 2, 7, 33}) {
            if (begin + count > 300) continue;
            const Tensor some = product(x.view().Rows(begin, count));
            ASSERT_TRUE(SameBits(some.view(), all.view().Rows(begin, count))) << begin << " + " << count;
          }
        }
      }
    }
  }
}

// The kernels read weights with long rows differently: x leaves less room in the caches, so they take several
// rows at a time.
TEST_P(ProductConformance, LongRowsDecodeAlikeInAnyCompany) {
  for (DType type : {DType::kBF16, DType::kF16}) {
    for (int64_t inputs : {2048, 2060, 4096, 4103, 8225}) {
      SCOPED_TRACE(std::string(Info(type).name) + " " + std::to_string(inputs));
      const Tensor x = Random(2, inputs, 4);
      const Tensor w = RandomWeight(type, 11, inputs, 5);
      const Tensor all = Decode(x.view(), w.view());
      ExpectClose(all, NaiveProduct(x.view(), w.view(), {}), tolerance());
      for (int64_t begin : {0, 1, 5}) {
        for (int64_t count : {1, 2, 4, 6}) {
          const Tensor some = Decode(x.view().Rows(1, 1), w.view().Rows(begin, count));
          ASSERT_TRUE(SameBits(some.view(), all.view().Rows(1, 1).Cols(begin, count)))
              << begin << " + " << count;
        }
      }
    }
  }
}

TEST_P(ProductConformance, ThreadsChangeNothing) {
  const Tensor x = Random(70, 512, 6);
  const Tensor w = RandomWeight(DType::kQ4_K, 200, 512, 7);
  const Tensor prefill = Prefill(x.view(), w.view());
  const Tensor decode = Decode(x.view(), w.view());
  for (int threads : {1, 3}) {
    const std::unique_ptr<Backend> other = Make(threads);
    PackedMatrix packed;
    other->Pack(w.view(), packed);
    Tensor y(DType::kF32, 70, 200);
    other->Product(x.view(), packed, {}, y.mutable_view());
    EXPECT_TRUE(SameBits(y.view(), prefill.view())) << threads;
    other->DecodeProduct(x.view(), w.view(), {}, y.mutable_view());
    EXPECT_TRUE(SameBits(y.view(), decode.view())) << threads;
  }
}

// Products of one call share inputs, or not, and have types, lengths and numbers of rows of their own.
TEST_P(ProductConformance, ProductsTogetherHaveTheBitsOfEachAlone) {
  const Tensor x = Random(3, 512, 6);
  const Tensor other = Random(20, 256, 7);
  struct Part {
    TensorView x;
    DType type;
    int64_t outputs;
  };
  const std::vector<Part> parts = {{x.view(), DType::kQ4_0, 200},
                                   {x.view(), DType::kQ4_K, 33},
                                   {x.view().Rows(1, 1), DType::kQ4_0, 200},
                                   {x.view(), DType::kQ4_0, 7},
                                   {other.view(), DType::kQ8_0, 40},
                                   {other.view().Rows(0, 0), DType::kQ8_0, 40},
                                   {x.view().Cols(0, 256), DType::kF32, 9},
                                   {other.view().Rows(3, 2), DType::kBF16, 150},
                                   {other.view().Rows(3, 2), DType::kF16, 3},
                                   {x.view().Rows(2, 1), DType::kQ8_0, 1}};
  for (const bool several : {false, true}) {  // rows of x
    std::vector<Tensor> weights, results, expected;
    const Tensor bias = Random(1, 200, 8);
    for (const Part& part : parts) {
      if (!several && part.x.rows > 1) continue;
      weights.push_back(RandomWeight(part.type, part.outputs, part.x.cols, 9));
      results.emplace_back(DType::kF32, part.x.rows, part.outputs);
    }
    std::vector<DecodeTask> tasks;
    for (const Part& part : parts) {
      if (!several && part.x.rows > 1) continue;
      const size_t i = tasks.size();
      const TensorView own_bias = i % 2 == 0 ? bias.view().Cols(0, part.outputs) : TensorView();
      tasks.push_back({part.x, weights[i].view(), own_bias, results[i].mutable_view()});
      expected.push_back(Decode(part.x, weights[i].view(), own_bias));
    }
    be().DecodeProducts(tasks);
    for (size_t i = 0; i < tasks.size(); ++i)
      EXPECT_TRUE(SameBits(results[i].view(), expected[i].view())) << i << (several ? " of several" : "");
  }
  be().DecodeProducts({});
}

TEST_P(ProductConformance, APackedMatrixIsReusedForOtherShapes) {
  const Tensor x = Random(3, 64, 8);
  PackedMatrix packed;
  for (int64_t outputs : {50, 7, 120}) {
    const Tensor w = Random(outputs, 64, 9, 0.1f);
    be().Pack(w.view(), packed);
    EXPECT_EQ(packed.outputs, outputs);
    EXPECT_EQ(packed.inputs, 64);
    Tensor y(DType::kF32, 3, outputs);
    be().Product(x.view(), packed, {}, y.mutable_view());
    ExpectClose(y.view(), NaiveProduct(x.view(), w.view(), {}), tolerance());
  }
}

// Parts of one type, of two types, and with one part that stays fp32.
TEST_P(ProductConformance, StackedPartsAreOneProduct) {
  const Tensor x = Random(21, 256, 10);
  for (const auto& [first, second] :
       {std::pair{DType::kQ4_K, DType::kQ6_K}, std::pair{DType::kBF16, DType::kBF16},
        std::pair{DType::kQ8_0, DType::kF32}, std::pair{DType::kIQ4_XS, DType::kIQ4_NL},
        std::pair{DType::kMXFP4, DType::kQ8_0}, std::pair{DType::kIQ3_S, DType::kIQ2_XS}}) {
    const Tensor a = RandomWeight(first, 50, 256, 11);
    const Tensor b = RandomWeight(second, 33, 256, 12);
    const Tensor bias = Random(1, 83, 13);
    PackedMatrix packed;
    be().PackParts(std::vector{a.view(), b.view()}, packed);
    EXPECT_EQ(packed.outputs, 83);
    Tensor y(DType::kF32, 21, 83);
    be().Product(x.view(), packed, bias.view(), y.mutable_view());
    ExpectClose(y.view().Cols(0, 50), NaiveProduct(x.view(), a.view(), bias.view().Cols(0, 50)), tolerance());
    ExpectClose(y.view().Cols(50, 33), NaiveProduct(x.view(), b.view(), bias.view().Cols(50, 33)),
                tolerance());
  }
}

// Outputs that are and are not multiples of strips of 16 and panels of 32 columns; parts of two types.
TEST_P(ProductConformance, AGatedProductIsTheActivatedGateTimesUp) {
  for (const auto& [type, other] :
       {std::pair{DType::kF32, DType::kF32}, std::pair{DType::kBF16, DType::kBF16},
        std::pair{DType::kQ4_0, DType::kQ4_0}, std::pair{DType::kIQ3_XXS, DType::kQ5_0}}) {
    for (int64_t outputs : {1, 16, 33, 64, 150}) {
      Activation activation = outputs % 5 == 0   ? Activation::kSigmoid
                              : outputs % 3 == 0 ? Activation::kSwiGluOai
                              : outputs % 2 == 0 ? Activation::kGelu
                                                 : Activation::kSilu;
      if (!Gates(activation)) activation = Activation::kSilu;
      SCOPED_TRACE(std::string(Info(type).name) + " " + std::to_string(outputs));
      const Tensor x = Random(19, 256, 14);
      const Tensor gate = RandomWeight(type, outputs, 256, 15);
      const Tensor up = RandomWeight(other, outputs, 256, 16);
      const Tensor bias = Random(1, 2 * outputs, 17);
      for (bool with_bias : {false, true}) {
        const auto part = [&](int64_t begin) {
          return with_bias ? bias.view().Cols(begin, outputs) : TensorView();
        };
        Matrix expected = NaiveProduct(x.view(), gate.view(), part(0));
        const Matrix factor = NaiveProduct(x.view(), up.view(), part(outputs));
        for (size_t i = 0; i < expected.size(); ++i) {
          for (size_t j = 0; j < expected[i].size(); ++j) {
            expected[i][j] = Gated(activation, expected[i][j], factor[i][j]);
          }
        }
        PackedMatrix packed;
        be().PackGated(gate.view(), up.view(), activation, packed);
        Tensor y(DType::kF32, 19, outputs);
        be().Product(x.view(), packed, with_bias ? bias.view() : TensorView(), y.mutable_view());
        // With a single column, errors do not average out.
        // Scales of random groups differ by up to 31 times: few terms carry a sum, and errors average less.
        const double wider = type == DType::kIQ3_XXS ? 2 : 1;
        ExpectClose(y.view(), expected, wider * (outputs == 1 ? 6 : 2) * tolerance());
        // Then a plain matrix in the same memory.
        be().Pack(gate.view(), packed);
        be().Product(x.view(), packed, {}, y.mutable_view());
        ExpectClose(y.view(), NaiveProduct(x.view(), gate.view(), {}), wider * tolerance());
      }
    }
  }
}

TEST_P(ProductConformance, AddingIsTheProductAndThenASum) {
  for (DType type : {DType::kF32, DType::kBF16, DType::kQ8_0}) {
    const Tensor x = Random(70, 256, 18);
    const Tensor w = RandomWeight(type, 77, 256, 19);
    const Tensor residual = Random(70, 77, 20);
    PackedMatrix packed;
    be().Pack(w.view(), packed);
    Tensor product(DType::kF32, 70, 77);
    be().Product(x.view(), packed, {}, product.mutable_view());
    Tensor expected = residual.Clone();
    be().Add(product.view(), expected.mutable_view());
    Tensor y = residual.Clone();
    be().ProductInto(x.view(), packed, {}, ProductEnd::kAdd, y.mutable_view());
    EXPECT_TRUE(SameBits(y, expected)) << Info(type).name;
  }
}

// Packing for one product gives the same bits as packing for several, whatever reuses the memory afterwards.
TEST_P(ProductConformance, PackingOnceGivesTheSameBits) {
  constexpr int64_t kOutputs =
      150;  // two panels and a half, or five gated ones, the last of them partly filled
  const Tensor bias = Random(1, 2 * kOutputs, 23);
  for (DType type : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4_0}) {
    const Tensor a = RandomWeight(type, kOutputs, 352, 21);
    const Tensor b = RandomWeight(type, kOutputs, 352, 22);
    PackedMatrix kept;
    PackedMatrix once;
    once.once = true;
    for (int64_t rows : {1, 7, 400}) {
      for (bool gated : {false, true}) {
        SCOPED_TRACE(fmt::format("{}, {} rows, gated {}", Info(type).name, rows, gated));
        const Tensor x = Random(rows, 352, 24);
        const Tensor residual = Random(rows, gated ? kOutputs : 2 * kOutputs, 25);
        const auto run = [&](PackedMatrix& packed, ProductEnd end) {
          if (gated) {
            be().PackGated(a.view(), b.view(), Activation::kSilu, packed);
          } else {
            be().PackParts(std::vector{a.view(), b.view()}, packed);
          }
          Tensor y = residual.Clone();
          be().ProductInto(x.view(), packed, bias.view(), end, y.mutable_view());
          return y;
        };
        for (ProductEnd end : {ProductEnd::kStore, ProductEnd::kAdd}) {
          EXPECT_TRUE(SameBits(run(once, end), run(kept, end)));
        }
      }
    }
    once.once = false;  // stored again
    be().Pack(a.view(), once);
    be().Pack(a.view(), kept);
    const Tensor x = Random(3, 352, 26);
    Tensor y(DType::kF32, 3, kOutputs);
    Tensor expected(DType::kF32, 3, kOutputs);
    be().Product(x.view(), once, {}, y.mutable_view());
    be().Product(x.view(), kept, {}, expected.mutable_view());
    EXPECT_TRUE(SameBits(y, expected)) << Info(type).name;
  }
}

TEST_P(ProductConformance, NoRowsIsNoWork) {
  const Tensor w = Random(8, 32, 1);
  const Tensor none(DType::kF32, 0, 32);
  EXPECT_EQ(Prefill(none.view(), w.view()).rows(), 0);
  EXPECT_EQ(Decode(none.view(), w.view()).rows(), 0);
}

TEST_P(ProductConformance, WrongShapesFail) {
  const Tensor x = Random(2, 32, 1);
  const Tensor w = Random(8, 64, 2);
  const Tensor fits = Random(8, 32, 2);
  Tensor y(DType::kF32, 2, 8);
  Tensor narrow(DType::kF32, 2, 7);
  PackedMatrix packed;
  be().Pack(w.view(), packed);
  EXPECT_THROW(be().Product(x.view(), packed, {}, y.mutable_view()), CheckFailure);
  EXPECT_THROW(be().DecodeProduct(x.view(), w.view(), {}, y.mutable_view()), CheckFailure);
  be().Pack(fits.view(), packed);
  EXPECT_THROW(be().Product(x.view(), packed, {}, narrow.mutable_view()), CheckFailure);
  EXPECT_THROW(be().Product(x.view(), packed, narrow.view().Rows(0, 1), y.mutable_view()), CheckFailure);
  EXPECT_THROW(be().DecodeProduct(x.view(), fits.view(), {}, narrow.mutable_view()), CheckFailure);
  EXPECT_THROW(be().DecodeProduct(x.view(), fits.view(), y.view(), y.mutable_view()), CheckFailure);
}

TEST_P(ProductConformance, EmbedEveryType) {
  for (DType type : kTypes) {
    const int64_t d = Info(type).block_elements * 2;
    const Tensor table = RandomWeight(type, 12, d, 3);
    const std::vector<int32_t> ids = {11, 0, 5, 5, 0};
    Tensor y(DType::kF32, 5, d);
    const Matrix all = ToMatrix(table.view());
    for (const float scale : {1.0f, 25.3f}) {
      if (scale != 1 && be().name() == "gpu") continue;  // Backend::CheckNeeds refuses it
      be().Embed(table.view(), ids, scale, y.mutable_view());
      Matrix expected;
      for (int32_t id : ids) {
        expected.push_back(all[id]);
        for (double& v : expected.back()) v *= scale;
      }
      SCOPED_TRACE(Info(type).name);
      ExpectClose(y.view(), expected, 1e-6);
    }
  }
  const Tensor table = Random(12, 8, 3);
  Tensor y(DType::kF32, 1, 8);
  EXPECT_THROW(be().Embed(table.view(), std::vector<int32_t>{1, 2}, 1, y.mutable_view()), CheckFailure);
}

INSTANTIATE_TEST_SUITE_P(Backends, ProductConformance, ::testing::ValuesIn(kConfigs), ConfigName);

}  // namespace
}  // namespace coppice
