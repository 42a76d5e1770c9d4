// Backend::Convolve, which only layers with a state need.
#include "kernels/conformance_support.h"

namespace coppice {
namespace {

using namespace testing_kernels;

class ConvolutionConformance : public StateConformanceTest {};

struct ConvolutionCase {
  int64_t taps, channels, rows;
  bool bias, silu;
};

// Every matrix that can be some columns of a wider one is.
struct ConvolutionData {
  explicit ConvolutionData(const ConvolutionCase& c)
      : wide(Random(c.rows, c.channels + 7, 1, 3)),
        before(Random(c.taps - 1, c.channels + 2, 2, 3)),
        weight(Random(c.taps, c.channels + 1, 3)),
        bias(Random(1, c.channels, 4)),
        y(Random(c.rows, c.channels + 3, 5)),
        channels(c.channels) {
    by = {weight.view().Cols(1, channels), c.bias ? bias.view() : TensorView(), c.silu};
  }
  TensorView X() const { return wide.view().Cols(5, channels); }
  TensorView Before() const { return before.view().Cols(1, channels); }
  MutableTensorView Y() { return y.mutable_view().Cols(2, channels); }

  Tensor wide, before, weight, bias, y;
  int64_t channels;
  Convolution by;
};

const std::vector<ConvolutionCase> kConvolutionCases = {
    {4, 37, 9, true, true},   {4, 5, 1, false, true},    {2, 16, 30, true, false},
    {3, 64, 2, false, false}, {1, 7, 5, false, true},    {4, 4100, 3, true, true},
    {3, 9, 300, true, true},  {6, 8192, 2, false, true}, {4, 8, 3, false, false},
};

TEST_P(ConvolutionConformance, ConvolveFollowsTheEquation) {
  for (const ConvolutionCase& c : kConvolutionCases) {
    SCOPED_TRACE(::testing::PrintToString(c.taps) + " taps, " + ::testing::PrintToString(c.channels));
    ConvolutionData data(c);
    Matrix x = c.taps > 1 ? ToMatrix(data.Before()) : Matrix();
    for (const std::vector<double>& row : ToMatrix(data.X())) x.push_back(row);
    const Matrix weight = ToMatrix(data.by.weight);
    Matrix expected(static_cast<size_t>(c.rows), std::vector<double>(static_cast<size_t>(c.channels)));
    for (size_t i = 0; i < expected.size(); ++i) {
      for (size_t channel = 0; channel < expected[i].size(); ++channel) {
        double sum = c.bias ? data.bias.view().Row<float>(0)[channel] : 0;
        for (size_t t = 0; t < weight.size(); ++t) sum += weight[t][channel] * x[i + t][channel];
        expected[i][channel] = c.silu ? sum / (1 + std::exp(-sum)) : sum;
      }
    }
    const Tensor y = data.y.Clone();
    be().Convolve(data.X(), data.Before(), data.by, data.Y());
    ExpectClose(TensorView(data.Y()), expected, 1e-6);
    EXPECT_TRUE(SameBits(data.y.view().Cols(0, 2), y.view().Cols(0, 2)));
    EXPECT_TRUE(SameBits(data.y.view().Cols(c.channels + 2, 1), y.view().Cols(c.channels + 2, 1)));
  }
}

// A part of a sequence behind its last rows, whichever they are.
TEST_P(ConvolutionConformance, ConvolutionsContinue) {
  for (const ConvolutionCase& c : kConvolutionCases) {
    if (c.taps == 1) continue;
    ConvolutionData whole(c);
    be().Convolve(whole.X(), whole.Before(), whole.by, whole.Y());
    for (const int threads : {1, 3}) {
      const std::unique_ptr<Backend> backend = Make(threads);
      ConvolutionData parts(c);
      Tensor all = Random(c.taps - 1 + c.rows, c.channels, 9);
      for (int64_t i = 0; i < all.rows(); ++i) {
        const TensorView from =
            i < c.taps - 1 ? parts.Before().Rows(i, 1) : parts.X().Rows(i - c.taps + 1, 1);
        std::ranges::copy(from.Row<float>(0), all.mutable_view().Row<float>(i).begin());
      }
      for (int64_t i = 0; i < c.rows; i += 2) {
        const int64_t count = std::min<int64_t>(2, c.rows - i);
        backend->Convolve(all.view().Rows(i + c.taps - 1, count), all.view().Rows(i, c.taps - 1), parts.by,
                          parts.Y().Rows(i, count));
      }
      EXPECT_TRUE(SameBits(parts.y, whole.y)) << c.taps << " taps, " << c.channels << " channels";
    }
  }
}

TEST_P(ConvolutionConformance, ConvolveSaturates) {
  ConvolutionData data({1, 4, 1, false, true});
  std::ranges::fill(data.weight.mutable_view().Row<float>(0), 1.0f);
  const std::vector<float> extremes = {-1e4f, 1e4f, -90, 0};
  std::ranges::copy(extremes, data.wide.mutable_view().Row<float>(0).begin() + 5);
  be().Convolve(data.X(), {}, data.by, data.Y());
  const std::span<float> y = data.Y().Row<float>(0);
  EXPECT_NEAR(y[0], 0, 1e-30);
  EXPECT_EQ(y[1], 1e4f);
  EXPECT_NEAR(y[2], 0, 1e-30);
  EXPECT_EQ(y[3], 0);
}

TEST_P(ConvolutionConformance, ConvolveChecksShapes) {
  ConvolutionData data({4, 12, 5, true, true});
  const TensorView x = data.X();
  const TensorView before = data.Before();
  EXPECT_NO_THROW(be().Convolve(x, before, data.by, data.Y()));
  EXPECT_THROW(be().Convolve(x, before.Rows(0, 2), data.by, data.Y()), CheckFailure);
  EXPECT_THROW(be().Convolve(x, before.Cols(0, 8), data.by, data.Y()), CheckFailure);
  EXPECT_THROW(be().Convolve(x.Cols(0, 8), before, data.by, data.Y()), CheckFailure);
  EXPECT_THROW(be().Convolve(x, before, data.by, data.Y().Rows(0, 4)), CheckFailure);
  Convolution by = data.by;
  by.bias = data.by.bias.Cols(0, 8);
  EXPECT_THROW(be().Convolve(x, before, by, data.Y()), CheckFailure);
  by = data.by;
  by.weight = {};
  EXPECT_THROW(be().Convolve(x, before, by, data.Y()), CheckFailure);
}

INSTANTIATE_TEST_SUITE_P(Backends, ConvolutionConformance, ::testing::ValuesIn(kConfigs), ConfigName);

}  // namespace
}  // namespace coppice
