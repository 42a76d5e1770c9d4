// The row-wise operations and the selection of every backend, against fp64 formulas. They are fp32 in every
// backend, so the tolerance does not depend on `exact`.
#include <bit>

#include "kernels/conformance_support.h"

namespace coppice {
namespace {

using namespace testing_kernels;

class RowConformance : public ConformanceTest {};

constexpr double kTolerance = 1e-5;

const std::vector<std::pair<int64_t, int64_t>> kShapes = {{1, 1},  {1, 7},     {3, 64},   {5, 100},
                                                          {2, 33}, {33, 1000}, {2, 4096}, {70, 24}};

template <typename F>
Matrix Map(const Matrix& a, F f) {
  Matrix y = a;
  for (std::vector<double>& row : y) {
    for (double& v : row) v = f(v);
  }
  return y;
}

double Mean(const std::vector<double>& row) {
  return std::accumulate(row.begin(), row.end(), 0.0) / row.size();
}

TEST_P(RowConformance, RmsNorm) {
  for (const auto& [m, d] : kShapes) {
    Tensor x = Random(m, d, 1, 3);
    const Tensor w = Random(1, d, 2);
    Matrix expected = ToMatrix(x.view());
    for (std::vector<double>& row : expected) {
      const double rms = std::sqrt(Rms(row) * Rms(row) + 1e-5f);
      for (int64_t c = 0; c < d; ++c) row[c] = row[c] / rms * w.view().Row<float>(0)[c];
    }
    Tensor y(DType::kF32, m, d);
    be().RmsNorm(x.view(), w.view(), 1e-5f, y.mutable_view());
    ExpectClose(y.view(), expected, kTolerance);
    be().RmsNorm(x.view(), w.view(), 1e-5f, x.mutable_view());
    EXPECT_TRUE(SameBits(x.view(), y.view())) << "in place " << m << "x" << d;
  }
}

TEST_P(RowConformance, ANarrowerWeightNormalisesEachPartOfARow) {
  for (const auto& [parts, width] : {std::pair{1, 8}, {4, 256}, {3, 80}, {5, 7}}) {
    Tensor x = Random(9, parts * width, 1, 3);
    const Tensor w = Random(1, width, 2);
    Tensor expected(DType::kF32, 9, parts * width);
    for (int p = 0; p < parts; ++p) {
      be().RmsNorm(x.view().Cols(p * width, width), w.view(), 1e-6f,
                   expected.mutable_view().Cols(p * width, width));
    }
    be().RmsNorm(x.view(), w.view(), 1e-6f, x.mutable_view());
    EXPECT_TRUE(SameBits(x, expected)) << parts << " of " << width;
  }
}

TEST_P(RowConformance, RmsNormOfZerosIsZero) {
  const Tensor x = Tensor::Zeros(DType::kF32, 2, 40);
  const Tensor w = Random(1, 40, 2);
  Tensor y = Random(2, 40, 3);
  be().RmsNorm(x.view(), w.view(), 1e-5f, y.mutable_view());
  for (float v : y.view().Row<float>(1)) EXPECT_EQ(v, 0.0f);
}

TEST_P(RowConformance, LayerNorm) {
  for (const auto& [m, d] : kShapes) {
    for (float mean : {0.0f, 50.0f}) {  // at mean 50, E[x^2] - E[x]^2 would cancel
      Tensor x = Random(m, d, 1);
      for (int64_t i = 0; i < m; ++i) {
        for (float& v : x.mutable_view().Row<float>(i)) v += mean;
      }
      const Tensor w = Random(1, d, 2);
      const Tensor b = Random(1, d, 3);
      Matrix expected = ToMatrix(x.view());
      for (std::vector<double>& row : expected) {
        const double average = Mean(row);
        for (double& v : row) v -= average;
        const double deviation = std::sqrt(Rms(row) * Rms(row) + 1e-5f);
        for (int64_t c = 0; c < d; ++c) {
          row[c] = row[c] / deviation * w.view().Row<float>(0)[c] + b.view().Row<float>(0)[c];
        }
      }
      Tensor y(DType::kF32, m, d);
      be().LayerNorm(x.view(), w.view(), b.view(), 1e-5f, y.mutable_view());
      ExpectClose(y.view(), expected,
                  kTolerance * (mean == 0 ? 1 : 3));  // fp32 stores 50 with an error of 2e-6 of the deviation
      be().LayerNorm(x.view(), w.view(), b.view(), 1e-5f, x.mutable_view());
      EXPECT_TRUE(SameBits(x.view(), y.view())) << "in place " << m << "x" << d;
    }
  }
}

TEST_P(RowConformance, NormsDoNotDependOnOtherRows) {
  const Tensor x = Random(40, 200, 1);
  const Tensor w = Random(1, 200, 2);
  Tensor all(DType::kF32, 40, 200);
  Tensor one(DType::kF32, 1, 200);
  for (bool layer : {false, true}) {
    const auto norm = [&](const TensorView& in, MutableTensorView out) {
      if (layer) be().LayerNorm(in, w.view(), w.view(), 1e-6f, out);
      if (!layer) be().RmsNorm(in, w.view(), 1e-6f, out);
    };
    norm(x.view(), all.mutable_view());
    norm(x.view().Rows(31, 1), one.mutable_view());
    EXPECT_TRUE(SameBits(one.view(), all.view().Rows(31, 1))) << layer;
  }
}

TEST_P(RowConformance, Rope) {
  struct Case {
    int head_dim, heads, rotary;
  };
  for (const Case& c :
       {Case{4, 3, 4}, Case{8, 1, 8}, Case{64, 5, 64}, Case{80, 2, 32}, Case{128, 3, 128}, Case{96, 1, 50}}) {
    const std::vector<int32_t> positions = {0, 1, 5, 6, 63, 99};
    const int pairs = c.rotary / 2;
    const Tensor angle = Random(100, pairs, 7, 2);
    RopeTable table;
    Tensor cos(DType::kF32, 100, pairs);
    Tensor sin(DType::kF32, 100, pairs);
    for (int p = 0; p < 100; ++p) {
      for (int i = 0; i < pairs; ++i) {
        cos.mutable_view().Row<float>(p)[i] = std::cos(angle.view().Row<float>(p)[i]);
        sin.mutable_view().Row<float>(p)[i] = std::sin(angle.view().Row<float>(p)[i]);
      }
    }
    table.cos = cos.view();
    table.sin = sin.view();
    for (bool interleaved : {false, true}) {
      SCOPED_TRACE(std::to_string(c.head_dim) + (interleaved ? " interleaved" : " halves"));
      table.interleaved = interleaved;
      Tensor x = Random(6, c.heads * c.head_dim, 8);
      const Matrix before = ToMatrix(x.view());
      Matrix expected = before;
      for (size_t i = 0; i < positions.size(); ++i) {
        for (int h = 0; h < c.heads; ++h) {
          for (int pair = 0; pair < pairs; ++pair) {
            const int first = h * c.head_dim + (interleaved ? 2 * pair : pair);
            const int second = first + (interleaved ? 1 : pairs);
            const double co = cos.view().Row<float>(positions[i])[pair];
            const double si = sin.view().Row<float>(positions[i])[pair];
            expected[i][first] = before[i][first] * co - before[i][second] * si;
            expected[i][second] = before[i][second] * co + before[i][first] * si;
          }
        }
      }
      be().Rope(x.mutable_view(), c.head_dim, positions, table);
      ExpectClose(x.view(), expected, kTolerance);
      for (int d = c.rotary; d < c.head_dim; ++d) {
        EXPECT_EQ(x.view().Row<float>(5)[d], static_cast<float>(before[5][d])) << "not rotated";
      }
    }
  }
}

TEST_P(RowConformance, GateMul) {
  for (const Activation activation : {Activation::kSilu, Activation::kGelu, Activation::kSwiGluOai,
                                      Activation::kSigmoid, Activation::kIdentity, Activation::kRelu}) {
    if (!Gates(activation)) continue;
    for (const auto& [m, d] : kShapes) {
      Tensor gate = Random(m, d, 1, 4);
      const Tensor up = Random(m, d, 2, 4);
      Matrix expected = ToMatrix(gate.view());
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t c = 0; c < d; ++c)
          expected[i][c] = Gated(activation, expected[i][c], up.view().Row<float>(i)[c]);
      }
      be().GateMul(gate.mutable_view(), up.view(), activation);
      ExpectClose(gate.view(), expected, kTolerance);
    }
  }
}

// The squared ReLU of an FFN without a gate.
TEST_P(RowConformance, GateMulOfItself) {
  if (!Gates(Activation::kRelu)) GTEST_SKIP() << "Backend::CheckNeeds refuses it";
  for (const auto& [m, d] : kShapes) {
    Tensor x = Random(m, d, 1, 4);
    const Matrix expected = Map(ToMatrix(x.view()), [](double v) { return v > 0 ? v * v : 0; });
    be().GateMul(x.mutable_view(), x.view(), Activation::kRelu);
    ExpectClose(x.view(), expected, kTolerance);
  }
}

TEST_P(RowConformance, Gelu) {
  for (const auto& [m, d] : kShapes) {
    Tensor x = Random(m, d, 1, 2);
    const Matrix expected = Map(ToMatrix(x.view()), [](double v) { return Gated(Activation::kGelu, v, 1); });
    be().Gelu(x.mutable_view());
    ExpectClose(x.view(), expected, kTolerance);
  }
}

TEST_P(RowConformance, ActivationsOfExtremes) {
  const std::vector<float> values = {-1e30f, -1000, -100, -88.7f, -20, 0, 20, 88.7f, 100,
                                     1000,   1e30f, 1,    2,      3,   4, 5,  6};
  const int64_t n = static_cast<int64_t>(values.size());
  Tensor gate(DType::kF32, 1, n);
  Tensor gelu(DType::kF32, 1, n);
  Tensor one(DType::kF32, 1, n);
  for (int64_t c = 0; c < n; ++c) {
    gate.mutable_view().Row<float>(0)[c] = gelu.mutable_view().Row<float>(0)[c] = values[c];
    one.mutable_view().Row<float>(0)[c] = 1;
  }
  be().GateMul(gate.mutable_view(), one.view(), Activation::kSilu);
  be().Gelu(gelu.mutable_view());
  for (int64_t c = 0; c < n; ++c) {
    if (std::abs(values[c]) < 20) continue;
    const double expected = std::max(0.0f, values[c]);
    EXPECT_NEAR(gate.view().Row<float>(0)[c], expected, 1e-6 * expected + 1e-6) << values[c];
    EXPECT_NEAR(gelu.view().Row<float>(0)[c], expected, 1e-6 * expected + 1e-6) << values[c];
  }
}

TEST_P(RowConformance, AddIsExact) {
  for (const auto& [m, d] : kShapes) {
    const Tensor x = Random(m, d, 1);
    Tensor y = Random(m, d, 2);
    Tensor expected = y.Clone();
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t c = 0; c < d; ++c) expected.mutable_view().Row<float>(i)[c] += x.view().Row<float>(i)[c];
    }
    be().Add(x.view(), y.mutable_view());
    EXPECT_TRUE(SameBits(y.view(), expected.view()));
  }
}

TEST_P(RowConformance, GatherRowsOfEveryPlainType) {
  for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    Tensor x = Converted(Random(50, 37, 1), type);
    const std::vector<int32_t> rows = {0, 1, 5, 6, 20, 48, 49};
    Tensor expected(type, 7, 37);
    for (int64_t i = 0; i < 7; ++i) {
      std::memcpy(expected.mutable_view().RowBytes(i), x.view().RowBytes(rows[i]), BytesOf(type, 37));
    }
    Tensor y(type, 7, 37);
    be().GatherRows(x.view(), rows, y.mutable_view());
    EXPECT_TRUE(SameBits(y.view(), expected.view())) << Info(type).name;
    const std::vector<int32_t> any = {3, 3, 0};  // not in place, so rows may come in any order
    be().GatherRows(x.view(), any, y.mutable_view().Rows(0, 3));
    EXPECT_TRUE(SameBits(y.view().Rows(2, 1), x.view().Rows(0, 1)));
    be().GatherRows(x.view(), rows, x.mutable_view().Rows(0, 7));
    EXPECT_TRUE(SameBits(x.view().Rows(0, 7), expected.view())) << "in place " << Info(type).name;
  }
}

TEST_P(RowConformance, LongGatherInPlace) {  // long enough to be divided among threads
  Tensor x = Random(3000, 64, 1);
  const Tensor before = x.Clone();
  std::vector<int32_t> rows;
  for (int32_t i = 0; i < 3000; ++i) {
    if (i % 7 != 2) rows.push_back(i);
  }
  be().GatherRows(x.view(), rows, x.mutable_view().Rows(0, rows.size()));
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSERT_TRUE(SameBits(x.view().Rows(i, 1), before.view().Rows(rows[i], 1))) << i;
  }
}

TEST_P(RowConformance, ScatterAddTouchesOnlyItsRows) {
  const Tensor x = Random(4, 37, 1);
  Tensor y = Random(9, 37, 2);
  Tensor expected = y.Clone();
  const std::vector<int32_t> rows = {1, 2, 5, 8};
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t c = 0; c < 37; ++c)
      expected.mutable_view().Row<float>(rows[i])[c] += x.view().Row<float>(i)[c];
  }
  be().ScatterAddRows(x.view(), rows, y.mutable_view());
  EXPECT_TRUE(SameBits(y.view(), expected.view()));
}

TEST_P(RowConformance, ConvertRoundsToNearestEven) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> special = {
      0,     -0.0f,     1,     -1,    inf,     -inf,    1.00390625f,    1.01171875f, 1.00048828125f,
      65504, 65519.99f, 65520, 1e-7f, 5.9e-8f, 3.4e38f, 1.17549435e-38f};
  Tensor x = Random(20, 133, 1, 100);
  std::copy(special.begin(), special.end(), x.mutable_view().Row<float>(3).begin());
  x.mutable_view().Row<float>(4)[7] = std::numeric_limits<float>::quiet_NaN();
  for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Tensor expected = Converted(x.view(), type);
    Tensor y(type, 20, 133);
    be().Convert(x.view(), y.mutable_view());
    const Matrix nan_row = ToMatrix(y.view().Rows(4, 1));
    EXPECT_TRUE(std::isnan(nan_row[0][7])) << Info(type).name;  // any NaN will do
    EXPECT_TRUE(SameBits(y.view().Rows(0, 4), expected.view().Rows(0, 4))) << Info(type).name;
    EXPECT_TRUE(SameBits(y.view().Rows(5, 15), expected.view().Rows(5, 15))) << Info(type).name;
  }
}

// Accurate to half a step of the scale, which is itself rounded to fp16. A tie may take either code.
TEST_P(RowConformance, ConvertToQ8) {
  Tensor x = Random(20, 160, 1, 100);
  std::fill_n(x.mutable_view().Row<float>(3).begin(), 32, 0.0f);
  std::fill_n(x.mutable_view().Row<float>(3).begin() + 32, 32, -3.0f);
  std::fill_n(x.mutable_view().Row<float>(3).begin() + 64, 32, 1e-30f);
  Tensor y(DType::kQ8_0, 20, 160);
  be().Convert(x.view(), y.mutable_view());
  const Matrix actual = ToMatrix(y.view());
  for (int64_t i = 0; i < 20; ++i) {
    const std::span<const float> row = x.view().Row<float>(i);
    for (int64_t c = 0; c < 160; ++c) {
      float largest = 0;
      for (int64_t k = c / 32 * 32; k < c / 32 * 32 + 32; ++k) largest = std::max(largest, std::abs(row[k]));
      ASSERT_NEAR(actual[i][c], row[c], largest * (0.501 / 127 + 0x1p-11) + 127 * 0x1p-25) << i << " " << c;
      ASSERT_TRUE(row[c] != 0 || actual[i][c] == 0);
    }
  }
  EXPECT_THROW(be().Convert(x.view().Cols(0, 40), y.mutable_view()), CheckFailure);
  Tensor gathered(DType::kQ8_0, 2, 160);
  const std::vector<int32_t> rows = {3, 19};
  be().GatherRows(y.view(), rows, gathered.mutable_view());
  EXPECT_TRUE(SameBits(gathered.view().Rows(1, 1), y.view().Rows(19, 1)));
}

TEST(CacheTypes, OnlyThoseThatABackendKeeps) {
  if (!MakeNativeBackendOrSkip("cpu", {.threads = 1})) GTEST_SKIP() << "this CPU lacks the ISA asked for";
  const auto error_of = [](const char* name, const BackendOptions& options) -> std::string {
    try {
      MakeBackend(name, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(error_of("cpu", {.threads = 1, .cache_type = DType::kF16}).find("F16"), std::string::npos);
  EXPECT_NE(error_of("cpu", {.threads = 1, .exact = true, .cache_type = DType::kQ8_0}).find("exact"),
            std::string::npos);
  EXPECT_NE(error_of("reference", {.cache_type = DType::kBF16}).find("reference"), std::string::npos);
  EXPECT_EQ(error_of("reference", {.cache_type = DType::kF32}), "");
  for (const DType type : {DType::kF32, DType::kBF16, DType::kQ8_0}) {
    EXPECT_EQ(MakeBackend("cpu", {.threads = 1, .cache_type = type})->cache_dtype(), type);
  }
}

TEST_P(RowConformance, Selection) {  // selection_test.cpp tests the rules in full
  Tensor s(DType::kF32, 1, 8);
  const std::vector<float> values = {5, 1, 3, 3, 8, 2, 2, 6};
  std::copy(values.begin(), values.end(), s.mutable_view().Row<float>(0).begin());
  using Rows = std::vector<int32_t>;
  EXPECT_EQ(be().TopK(s.view(), 4).ToRows(), (Rows{0, 2, 4, 7}));
  EXPECT_EQ(be().SmallestSetWithMass(s.view(), .9).ToRows(), (Rows{0, 2, 3, 4, 5, 7}));
  EXPECT_TRUE(be().SmallestSetWithMass(s.view(), 1).IsAll());
  const TensorView middle = s.view().Cols(2, 4);
  EXPECT_EQ(be().TopK(middle, 1).ToRows(), (Rows{2}));
}

TEST_P(RowConformance, WrongShapesFail) {
  const Tensor x = Random(3, 8, 1);
  const Tensor w = Random(1, 8, 2);
  const Tensor half = Converted(x.view(), DType::kF16);
  Tensor y(DType::kF32, 3, 8);
  const MutableTensorView out = y.mutable_view();
  EXPECT_THROW(be().RmsNorm(x.view(), w.view().Cols(0, 7), 1e-5f, out), CheckFailure);
  EXPECT_THROW(be().RmsNorm(x.view(), w.view(), 1e-5f, out.Rows(0, 2)), CheckFailure);
  EXPECT_THROW(be().RmsNorm(half.view(), w.view(), 1e-5f, out), CheckFailure);
  EXPECT_THROW(be().LayerNorm(x.view(), w.view(), w.view().Cols(0, 7), 1e-5f, out), CheckFailure);
  EXPECT_THROW(be().Add(x.view().Rows(0, 2), out), CheckFailure);
  EXPECT_THROW(be().GateMul(out, x.view().Cols(0, 4), Activation::kSilu), CheckFailure);
  EXPECT_THROW(be().Convert(x.view(), out.Rows(0, 2)), CheckFailure);
  const std::vector<int32_t> rows = {0, 1};
  EXPECT_THROW(be().GatherRows(x.view(), rows, out), CheckFailure);
  EXPECT_THROW(be().GatherRows(half.view(), rows, out.Rows(0, 2)), CheckFailure);
  EXPECT_THROW(be().ScatterAddRows(x.view(), rows, out), CheckFailure);
  RopeTable table;
  table.cos = table.sin = x.view().Cols(0, 2);
  EXPECT_THROW(be().Rope(out, 8, rows, table), CheckFailure);
  EXPECT_THROW(be().Rope(out, 3, std::vector<int32_t>{0, 1, 2}, table), CheckFailure);
  // Beyond the table, which ends at 2.
  EXPECT_THROW(be().Rope(out, 8, std::vector<int32_t>{0, 1, 3}, table), CheckFailure);
  EXPECT_THROW(be().TopK(x.view(), 1), CheckFailure);
}

INSTANTIATE_TEST_SUITE_P(Backends, RowConformance, ::testing::ValuesIn(kConfigs), ConfigName);

TEST(MakeBackend, NamesWhatThereIs) {
  const std::unique_ptr<Backend> reference = MakeBackend("reference", {.threads = 4});
  EXPECT_EQ(reference->name(), "reference");
  EXPECT_EQ(reference->threads(), 1);
  EXPECT_EQ(reference->cache_dtype(), DType::kF32);
  try {
    MakeBackend("tpu", {});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("'tpu'"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("reference"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace coppice
