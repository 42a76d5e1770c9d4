// Attention with codes (AttentionShape::int8_values and key_bits): values in 8 bits with vdpbf16ps' kernels,
// in 16 bits with those of AVX2. Conformance tests have the shapes; these have the numbers that codes could
// break on.
#include <limits>

#include "kernels/conformance_support.h"
#include "kernels/cpu/cpu_backend.h"

namespace coppice {
namespace {

using testing_kernels::AttentionCase;
using testing_kernels::AttentionData;
using testing_kernels::ExpectClose;
using testing_kernels::NaiveAttention;
using testing_kernels::SameBits;

struct Codes {
  Isa isa;
  int bits;
};

class CodeAttention : public ::testing::TestWithParam<Codes> {
 protected:
  void SetUp() override {
    const bool runs =
        GetParam().isa == Isa::kAvx2 ? CpuHas(Isa::kAvx2) : Cpu().avx512_bf16 && Cpu().avx512_vnni;
    if (!runs) GTEST_SKIP() << "this CPU has no such kernels";
    CpuFeatures features = Cpu();
    features.fast_bf16 = features.avx512_bf16;  // values in codes without keys in codes need vdpbf16ps
    backend_ = MakeCpuBackendForIsa({.threads = 2, .exact = false}, GetParam().isa, features);
  }
  Tensor Attend(const AttentionInput& in) {
    Tensor out(DType::kF32, in.queries.rows, in.queries.cols);
    backend_->Attention(in, out.mutable_view());
    return out;
  }
  // The allowed error, if 8 bits are allowed `error`.
  double Allowed(double error) const { return GetParam().bits == 8 ? error : error / 8; }

  std::unique_ptr<Backend> backend_;
};

AttentionInput WithCodes(const AttentionData& data, bool values, int key_bits) {
  AttentionInput in = data.Input();
  in.shape.int8_values = values;
  in.shape.key_bits = key_bits;
  return in;
}

template <typename Value>
void Fill(Tensor& t, Value value) {
  for (int64_t j = 0; j < t.rows(); ++j) {
    for (int64_t c = 0; c < t.cols(); ++c)
      t.mutable_view().Row<float>(j)[static_cast<size_t>(c)] = value(j, c);
  }
}

// Keys and values as a cache stores them.
void Store(AttentionData& data) {
  data.keys = testing_kernels::Converted(data.keys, DType::kBF16);
  data.values = testing_kernels::Converted(data.values, DType::kBF16);
}

// In each tile, one key gets `times` the attention of each other key.
AttentionData OneStrongKeyATile(float times, float strong_value, float other_value) {
  AttentionData data({.heads = 1, .kv_heads = 1, .head_dim = 64, .n = 320, .m = 7}, DType::kF32);
  Fill(data.queries, [&](int64_t, int64_t c) { return c == 0 ? 1 / data.shape.scale : 0.0f; });
  Fill(data.keys, [&](int64_t j, int64_t c) { return c == 0 && j % 64 != 20 ? -std::log(times) : 0.0f; });
  Fill(data.values, [&](int64_t j, int64_t c) {
    const float spread = 1 + 0.25f * static_cast<float>((j + c) % 5);
    return (j % 64 == 20 ? strong_value : other_value) * spread;
  });
  Store(data);
  return data;
}

// Softmax weights of 1/700 are a third of an 8-bit step, and 63 of them are 9 % of a tile. In the second case
// strong keys have small values: 8-bit weights relative to the strongest key would leave two bits for the
// others.
TEST_P(CodeAttention, ValuesKeepWhatIsSmall) {
  const AttentionData cases[] = {OneStrongKeyATile(700, 1, -1), OneStrongKeyATile(100, 0.01f, -1)};
  for (const AttentionData& data : cases) {
    const Tensor codes = Attend(WithCodes(data, true, 0));
    ExpectClose(codes, NaiveAttention(data.Input()), Allowed(1e-2));
    EXPECT_FALSE(SameBits(codes, Attend(data.Input())));  // shows that the kernels with codes ran
  }
}

// Keys whose first channel is 100 times the others, and whose scores are the others' doing. Without the
// rotation these would have 8-bit codes of one step: the error would be 0.38.
TEST_P(CodeAttention, KeysKeepWhatIsBesideALargeChannel) {
  AttentionData data({.heads = 2, .kv_heads = 1, .head_dim = 64, .n = 200, .m = 90}, DType::kF32);
  for (int64_t j = 0; j < data.keys.rows(); ++j) data.keys.mutable_view().Row<float>(j)[0] = 100;
  for (int64_t i = 0; i < data.queries.rows(); ++i) {
    for (size_t h = 0; h < 2; ++h) data.queries.mutable_view().Row<float>(i)[h * 64] = 0;
  }
  Store(data);
  const AttentionInput in = WithCodes(data, true, 8);
  const Tensor codes = Attend(in);
  EXPECT_FALSE(SameBits(codes, Attend(WithCodes(data, true, 0))));
  ExpectClose(codes, NaiveAttention(in), Allowed(1.5e-1));
}

// Keys with a large part in common, which the softmax does not see: it leaves few of 8 bits to what differs.
TEST_P(CodeAttention, KeysOf16BitsKeepWhatIsBesideACommonPart) {
  AttentionData data({.heads = 2, .kv_heads = 1, .head_dim = 256, .n = 200, .m = 90}, DType::kF32);
  const Tensor common = testing_kernels::Random(1, 256, 7, 12);
  for (int64_t j = 0; j < data.keys.rows(); ++j) {
    for (size_t c = 0; c < 256; ++c)
      data.keys.mutable_view().Row<float>(j)[c] += common.view().Row<float>(0)[c];
  }
  Store(data);
  const auto error = [&](int key_bits) {
    const AttentionInput in = WithCodes(data, true, key_bits);
    const Tensor out = Attend(in);
    const auto expected = NaiveAttention(in);
    double most = 0;
    for (int64_t i = 0; i < out.rows(); ++i) {
      for (size_t c = 0; c < 512; ++c)
        most = std::max(most, std::abs(out.view().Row<float>(i)[c] - expected[static_cast<size_t>(i)][c]));
    }
    return most;
  };
  EXPECT_LT(error(16), 4e-2);
  if (GetParam().bits == 8) {
    EXPECT_GT(error(8), 3 * error(16));
  }
}

// One channel alone becomes the largest code in every channel when it is rotated, and equal scores and values
// give every key the largest weight and value: the largest sums that can occur.
TEST_P(CodeAttention, TheLargestSumsFit) {
  for (const int dim : {32, 64, 128, 256}) {
    SCOPED_TRACE(dim);
    AttentionData data({.heads = 1, .kv_heads = 1, .head_dim = dim, .n = 256, .m = 100}, DType::kF32);
    Fill(data.queries, [](int64_t, int64_t c) { return c == 0 ? 3.0f : 0.0f; });
    Fill(data.keys, [](int64_t j, int64_t c) { return c == 0 ? (j % 3 == 0 ? -2.0f : 2.0f) : 0.0f; });
    Fill(data.values, [](int64_t j, int64_t) { return j % 3 == 0 ? -1.0f : 5.0f; });
    Store(data);
    for (const int key_bits : {8, 16}) {
      const AttentionInput in = WithCodes(data, true, key_bits);
      ExpectClose(Attend(in), NaiveAttention(in), Allowed(2e-2));
    }
  }
}

TEST_P(CodeAttention, ARowHasTheSameBitsInEveryCall) {
  const AttentionCase cases[] = {
      {.heads = 4, .kv_heads = 1, .head_dim = 64, .n = 2201, .m = 60},
      {.heads = 6, .kv_heads = 2, .head_dim = 96, .n = 65, .m = 65, .window = 20},
      {.heads = 5, .kv_heads = 1, .head_dim = 40, .n = 165, .m = 30, .hole = 2, .alibi = true},
      {.heads = 8, .kv_heads = 1, .head_dim = 64, .n = 700, .m = 40, .window = 128, .sinks = true},
      {.heads = 4, .kv_heads = 1, .head_dim = 256, .n = 300, .m = 40},
  };
  for (const AttentionCase& c : cases) {
    SCOPED_TRACE(::testing::PrintToString(c));
    const AttentionData data(c, DType::kBF16);
    for (const int key_bits : {0, 8, 16}) {
      const AttentionInput in = WithCodes(data, true, key_bits);
      const Tensor all = Attend(in);
      ExpectClose(all, NaiveAttention(in), Allowed(4e-2));
      for (const int count : {1, 2, 7}) {
        for (int first = 0; first + count <= c.m; first += 11) {
          ASSERT_TRUE(
              SameBits(Attend(testing_kernels::RowsOf(in, first, count)), all.view().Rows(first, count)))
              << count << " at " << first;
        }
      }
    }
  }
}

// Scores beyond 2^16, whose exponents do not fit beside kMagic, and tiles whose largest scores fall by more
// than 40 octaves and rise again, with rows of ordinary scores in the same vector.
TEST_P(CodeAttention, HugeScoresStayMeansAndChangeNoOtherRow) {
  AttentionData data({.heads = 1, .kv_heads = 1, .head_dim = 64, .n = 512, .m = 48}, DType::kF32);
  for (int64_t i = 0; i < data.queries.rows(); i += 3) {
    for (float& q : data.queries.mutable_view().Row<float>(i)) q *= i % 2 == 0 ? 1e6f : 3e2f;
  }
  Store(data);
  const AttentionInput in = WithCodes(data, true, 8);
  const Tensor all = Attend(in);
  for (int64_t i = 0; i < data.queries.rows(); ++i) {
    ASSERT_TRUE(SameBits(Attend(testing_kernels::RowsOf(in, i, 1)), all.view().Rows(i, 1))) << i;
    for (const float y : all.view().Row<float>(i)) ASSERT_LT(std::abs(y), 5.0f) << i;
  }
  const auto expected = NaiveAttention(in);
  for (int64_t i = 1; i < data.queries.rows(); i += 3) {
    for (size_t c = 0; c < 64; ++c)
      ASSERT_NEAR(all.view().Row<float>(i)[c], expected[static_cast<size_t>(i)][c], Allowed(4e-2));
  }
}

// Heads whose rotation has blocks of three sizes, and scales of any sign: no code depends on the scale.
TEST_P(CodeAttention, ScalesOfAnySignMeetHeadsOfSeveralBlocks) {
  for (const int dim : {96, 160, 224}) {
    AttentionData data({.heads = 3, .kv_heads = 1, .head_dim = dim, .n = 200, .m = 40}, DType::kBF16);
    for (const float sign : {1.0f, -1.0f, 0.0f}) {
      for (const int key_bits : {8, 16}) {
        SCOPED_TRACE(::testing::Message() << dim << " channels, " << sign << ", " << key_bits << " bits");
        AttentionInput in = WithCodes(data, true, key_bits);
        in.shape.scale *= sign;
        ExpectClose(Attend(in), NaiveAttention(in), Allowed(4e-2));
      }
    }
  }
}

// Queries with infinities or NaN, and those that become infinite when they are rotated or vanish.
TEST_P(CodeAttention, ExtremeQueriesChangeNoOtherRow) {
  const AttentionCase shape{.heads = 1, .kv_heads = 1, .head_dim = 64, .n = 300, .m = 48};
  const AttentionData plain(shape, DType::kBF16);
  AttentionData data(shape, DType::kBF16);
  const float infinity = std::numeric_limits<float>::infinity();
  const float extremes[] = {std::nanf(""), infinity, -infinity, 2e38f, 1e30f, 1e-30f, 1e-42f, 0.0f};
  const auto kind = [](int64_t i) { return i % 3 == 0 ? i / 3 % 8 : -1; };
  for (int64_t i = 0; i < shape.m; i += 3) {
    const float x = extremes[kind(i)];
    const auto row = data.queries.mutable_view().Row<float>(i);
    if (!std::isfinite(x)) row[static_cast<size_t>(i)] = x;
    for (float& q : row) q *= std::isfinite(x) ? x : 1;
  }
  const auto expected = NaiveAttention(data.Input());
  for (const int key_bits : {8, 16}) {
    const Tensor all = Attend(WithCodes(data, true, key_bits));
    const Tensor without = Attend(WithCodes(plain, true, key_bits));
    for (int64_t i = 0; i < shape.m; ++i) {
      SCOPED_TRACE(::testing::Message() << "row " << i << ", " << key_bits << " bits");
      if (kind(i) < 0) {
        ASSERT_TRUE(SameBits(all.view().Rows(i, 1), without.view().Rows(i, 1)));
      } else if (kind(i) == 4) {  // a mean of values
        for (const float y : all.view().Row<float>(i)) ASSERT_LT(std::abs(y), 5.0f);
      } else if (kind(i) > 4) {
        for (size_t c = 0; c < 64; ++c)
          ASSERT_NEAR(all.view().Row<float>(i)[c], expected[static_cast<size_t>(i)][c], Allowed(4e-2));
      }
    }
  }
}

// CPUs with VNNI whose vdpbf16ps is missing or slow have the same codes, and fp32 for all else.
TEST(CodeAttentionWithoutBf16, KeysAndValuesAsCodesNeedVnniAlone) {
  CpuFeatures features = Cpu();
  if (!features.avx512_bf16 || !features.avx512_vnni) GTEST_SKIP() << "this CPU has no such kernels";
  features.fast_bf16 = true;
  const std::unique_ptr<Backend> with = MakeCpuBackendForIsa({.threads = 2}, Isa::kAvx512, features);
  features.fast_bf16 = features.avx512_bf16 = false;
  const std::unique_ptr<Backend> without = MakeCpuBackendForIsa({.threads = 2}, Isa::kAvx512, features);
  const std::unique_ptr<Backend> fp32 =
      MakeCpuBackendForIsa({.threads = 2, .exact = true}, Isa::kAvx512, features);
  const AttentionData data({.heads = 4, .kv_heads = 1, .head_dim = 64, .n = 300, .m = 60}, DType::kBF16);
  const auto attend = [](Backend& be, const AttentionInput& in) {
    Tensor out(DType::kF32, in.queries.rows, in.queries.cols);
    be.Attention(in, out.mutable_view());
    return out;
  };
  const auto mass = [](Backend& be, const AttentionInput& in) {
    Tensor out(DType::kF32, 1, in.keys.rows);
    be.AttentionMass(in, {}, MassPool::kSum, out.mutable_view());
    return out;
  };
  const AttentionInput codes = WithCodes(data, true, 8);
  EXPECT_TRUE(SameBits(attend(*with, codes), attend(*without, codes)));
  EXPECT_FALSE(SameBits(attend(*without, codes), attend(*fp32, codes)));
  EXPECT_TRUE(SameBits(mass(*without, codes), mass(*fp32, codes)));
  for (const bool values : {false, true}) {
    const AttentionInput plain = WithCodes(data, values, 0);
    EXPECT_TRUE(SameBits(attend(*without, plain), attend(*fp32, plain)));
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, CodeAttention,
                         ::testing::Values(Codes{Isa::kAvx2, 16}, Codes{Isa::kAvx512, 8}),
                         [](const auto& test) { return test.param.bits == 16 ? "avx2" : "avx512_bf16"; });

}  // namespace
}  // namespace coppice
