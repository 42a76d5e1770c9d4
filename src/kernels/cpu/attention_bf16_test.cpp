// Attention with vdpbf16ps, on CPUs that support it: against fp32 kernels over the same cache, and its two
// variants against each other.
#include "kernels/conformance_support.h"
#include "kernels/cpu/cpu_backend.h"

namespace coppice {
namespace {

using testing_kernels::AttentionCase;
using testing_kernels::AttentionData;
using testing_kernels::SameBits;

// More than one chunk of keys, an odd number of keys, head dims that are and are not whole vectors, and all
// small numbers of rows.
const std::vector<AttentionCase> kBf16Cases = {
    {.heads = 4, .kv_heads = 1, .head_dim = 64, .n = 2201, .m = 60},
    {.heads = 2, .kv_heads = 2, .head_dim = 32, .n = 131, .m = 131},
    {.heads = 6, .kv_heads = 2, .head_dim = 96, .n = 65, .m = 65, .window = 20},
    {.heads = 5, .kv_heads = 1, .head_dim = 128, .n = 2300, .m = 9, .hole = 2, .alibi = true},
    {.heads = 8, .kv_heads = 1, .head_dim = 64, .n = 99, .m = 40},
    {.heads = 8, .kv_heads = 1, .head_dim = 64, .n = 700, .m = 40, .window = 128, .sinks = true},
    {.heads = 5, .kv_heads = 1, .head_dim = 40, .n = 65, .m = 30, .hole = 2},
};

class Bf16Attention : public ::testing::Test {
 protected:
  void SetUp() override {
    CpuFeatures features = Cpu();
    if (!features.avx512_bf16 || !features.avx512_vnni) GTEST_SKIP() << "for CPUs with AVX512_BF16";
    features.fast_bf16 = true;  // so that the kernels run on CPUs that have better ones as well
    fast_ = MakeCpuBackendForIsa({.threads = 2, .exact = false}, Isa::kAvx512, features);
    exact_ = MakeCpuBackendForIsa({.threads = 2, .exact = true}, Isa::kAvx512);
  }
  static Tensor Attend(Backend& backend, const AttentionInput& in) {
    Tensor out(DType::kF32, in.queries.rows, in.queries.cols);
    backend.Attention(in, out.mutable_view());
    return out;
  }
  static Tensor Mass(Backend& backend, const AttentionInput& in) {
    Tensor mass(DType::kF32, 1, in.keys.rows);
    backend.AttentionMass(in, {}, MassPool::kSum, mass.mutable_view());
    return mass;
  }
  static Tensor Decode(Backend& backend, const AttentionInput& in) {
    Tensor out(DType::kF32, in.queries.rows, in.queries.cols);
    backend.DecodeAttention(in, {}, out.mutable_view());
    return out;
  }
  std::unique_ptr<Backend> fast_, exact_;
};

TEST_F(Bf16Attention, IsCloseToFp32AndNotTheSame) {
  for (const AttentionCase& c : kBf16Cases) {
    SCOPED_TRACE(::testing::PrintToString(c));
    const AttentionData data(c, DType::kBF16);
    const Tensor fp32 = Attend(*exact_, data.Input());
    const Tensor bf16 = Attend(*fast_, data.Input());
    testing_kernels::ExpectClose(bf16, testing_kernels::ToMatrix(fp32.view()), 1e-2);
    EXPECT_FALSE(SameBits(fp32, bf16));  // the rounded factors show that the bf16 kernels ran
    const Tensor exact_mass = Mass(*exact_, data.Input());
    const Tensor mass = Mass(*fast_, data.Input());
    testing_kernels::ExpectClose(mass, testing_kernels::ToMatrix(exact_mass.view()), 1e-2);
    EXPECT_FALSE(SameBits(mass, exact_mass));
    const Tensor exact_step = Decode(*exact_, data.Input());
    const Tensor step = Decode(*fast_, data.Input());
    testing_kernels::ExpectClose(step, testing_kernels::ToMatrix(exact_step.view()), 1e-2);
    EXPECT_FALSE(SameBits(step, exact_step));
    if (HasFatalFailure()) return;
  }
}

TEST_F(Bf16Attention, FewRowsHaveTheBitsOfMany) {
  for (const AttentionCase& c : kBf16Cases) {
    SCOPED_TRACE(::testing::PrintToString(c));
    const AttentionData data(c, DType::kBF16);
    const AttentionInput in = data.Input();
    const Tensor all = Attend(*fast_, in);
    for (int count : {1, 2, 3}) {
      for (int first = 0; first + count <= c.m; first += 7) {
        AttentionInput some = in;
        some.queries = in.queries.Rows(first, count);
        some.query_positions = in.query_positions.subspan(first, count);
        ASSERT_TRUE(SameBits(Attend(*fast_, some), all.view().Rows(first, count)))
            << count << " at " << first;
      }
    }
  }
}

}  // namespace
}  // namespace coppice
