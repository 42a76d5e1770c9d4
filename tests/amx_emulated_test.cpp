// The AMX kernels, machine code of this build, against the oracles: natively on a CPU with AMX, through the
// emulator on any other with AVX-512 and its bf16 conversions.
#include <cstring>
#include <vector>

#include "amx_emulator.h"
#include "kernels/conformance_support.h"
#include "kernels/cpu/cpu_backend.h"

namespace coppice {
namespace {

using testing_kernels::AttentionCase;
using testing_kernels::AttentionData;

constexpr double kTolerance = 2e-2;  // bf16 factors, fp32 sums

// ---- The emulator itself

struct Config {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

void LoadConfig(const Config& c) { __asm__ volatile("ldtilecfg %0" : : "m"(c) : "memory"); }
void ReleaseTiles() { __asm__ volatile("tilerelease" : : : "memory"); }

// sums [5, 7] += a [5, 12 bytes] b [3, 28 bytes] with the instruction named, on odd shapes and a scaled,
// displaced address.
Config OddShapes() {
  Config c;
  c.rows[1] = 5, c.row_bytes[1] = 28;
  c.rows[2] = 5, c.row_bytes[2] = 12;
  c.rows[3] = 3, c.row_bytes[3] = 28;
  return c;
}

#define COPPICE_TILE_PRODUCT(instruction)                                                    \
  [](int32_t* to, const uint8_t* left, const uint8_t* right) {                               \
    __asm__ volatile(                                                                        \
        "tileloadd 64(%0,%3,4), %%tmm1\n tileloadd (%1,%3,4), %%tmm2\n"                      \
        "tileloaddt1 (%2,%3,4), %%tmm3\n" instruction                                        \
        " %%tmm3, %%tmm2, %%tmm1\n tilestored %%tmm1, 64(%0,%3,4)"                           \
        :                                                                                    \
        : "r"(reinterpret_cast<uintptr_t>(to) - 64), "r"(left), "r"(right), "r"(int64_t{16}) \
        : "memory");                                                                         \
  }

class AmxEmulated : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Cpu().avx512_bf16) GTEST_SKIP() << "this CPU has no AVX-512 with bf16";
    emulated_ = InstallAmxEmulator();
  }
  bool emulated_ = false;
};

TEST_F(AmxEmulated, IntegerProducts) {
  struct Case {
    void (*product)(int32_t*, const uint8_t*, const uint8_t*);
    bool a_signed, b_signed;
  };
  const std::vector<Case> cases = {{COPPICE_TILE_PRODUCT("tdpbssd"), true, true},
                                   {COPPICE_TILE_PRODUCT("tdpbsud"), true, false},
                                   {COPPICE_TILE_PRODUCT("tdpbusd"), false, true},
                                   {COPPICE_TILE_PRODUCT("tdpbuud"), false, false}};
  std::mt19937 random(3);
  for (const Case& test : cases) {
    alignas(64) uint8_t a[16 * 64], b[16 * 64];
    alignas(64) int32_t sums[16 * 16], expected[16 * 16];
    for (uint8_t& v : a) v = static_cast<uint8_t>(random());
    for (uint8_t& v : b) v = static_cast<uint8_t>(random());
    for (int i = 0; i < 256; ++i) expected[i] = sums[i] = static_cast<int32_t>(random() % 1000);
    for (int m = 0; m < 5; ++m) {
      for (int n = 0; n < 7; ++n) {
        for (int k = 0; k < 12; ++k) {
          const uint8_t u = a[m * 64 + k];
          const uint8_t v = b[k / 4 * 64 + 4 * n + k % 4];
          expected[m * 16 + n] +=
              (test.a_signed ? static_cast<int8_t>(u) : u) * (test.b_signed ? static_cast<int8_t>(v) : v);
        }
      }
    }
    const Config shapes = OddShapes();
    LoadConfig(shapes);
    Config stored;
    __asm__ volatile("sttilecfg %0" : "=m"(stored) : : "memory");
    EXPECT_EQ(std::memcmp(&stored, &shapes, sizeof stored), 0);
    test.product(sums, a, b);
    ReleaseTiles();
    EXPECT_EQ(std::memcmp(sums, expected, sizeof sums), 0);
  }
}

TEST_F(AmxEmulated, Bf16ProductOfSmallIntegersIsExact) {
  alignas(64) uint16_t a[16 * 32] = {}, b[16 * 32] = {};
  alignas(64) float sums[256] = {};
  float expected[256] = {};
  std::mt19937 random(4);
  const auto draw = [&] { return ToBF16(static_cast<float>(random() % 17) - 8); };
  for (uint16_t& v : a) v = draw().bits;
  for (uint16_t& v : b) v = draw().bits;
  for (int m = 0; m < 5; ++m) {
    for (int n = 0; n < 7; ++n) {
      for (int k = 0; k < 6; ++k) {
        expected[m * 16 + n] += ToFloat(BF16{a[m * 32 + k]}) * ToFloat(BF16{b[k / 2 * 32 + 2 * n + k % 2]});
      }
    }
  }
  LoadConfig(OddShapes());
  COPPICE_TILE_PRODUCT("tdpbf16ps")
  (reinterpret_cast<int32_t*>(sums), reinterpret_cast<uint8_t*>(a), reinterpret_cast<uint8_t*>(b));
  ReleaseTiles();
  EXPECT_EQ(std::memcmp(sums, expected, sizeof sums), 0);
}

TEST_F(AmxEmulated, BadConfigurationsAreRejected) {
  if (!emulated_) GTEST_SKIP() << "this CPU has AMX, which rejects them itself";
  Config rows = OddShapes();
  rows.rows[1] = 17;
  EXPECT_DEATH(LoadConfig(rows), "more than 16 rows");
  Config bytes = OddShapes();
  bytes.row_bytes[1] = 68;
  EXPECT_DEATH(LoadConfig(bytes), "more than 64 bytes");
  Config reserved = OddShapes();
  reserved.reserved[3] = 1;
  EXPECT_DEATH(LoadConfig(reserved), "reserved");
  Config palette = OddShapes();
  palette.palette = 2;
  EXPECT_DEATH(LoadConfig(palette), "palette");
  Config half = OddShapes();
  half.rows[2] = 0;
  EXPECT_DEATH(LoadConfig(half), "columns without rows");
  ReleaseTiles();
  EXPECT_DEATH(__asm__ volatile("tilezero %tmm1"), "before ldtilecfg");
  EXPECT_DEATH(
      {
        LoadConfig(OddShapes());
        __asm__ volatile("tilezero %tmm4");
      },
      "leaves out");
  EXPECT_DEATH(
      {
        LoadConfig(OddShapes());
        __asm__ volatile("tdpbssd %tmm2, %tmm3, %tmm1");
      },
      "another number of rows");
}

// ---- The kernels

class AmxAttention : public AmxEmulated {
 protected:
  void SetUp() override {
    AmxEmulated::SetUp();
    if (IsSkipped()) return;
    amx_ = MakeCpuBackendForIsa({.threads = 2, .exact = false}, Isa::kAmx);
    reference_ = MakeBackend("reference", {});
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

  static Tensor Sparse(Backend& backend, const AttentionInput& in, const SparsePattern& pattern,
                       int64_t first_query = 0) {
    Tensor out(DType::kF32, in.queries.rows, in.queries.cols);
    backend.SparseAttention(in, pattern, first_query, out.mutable_view());
    return out;
  }

  std::unique_ptr<Backend> amx_, reference_;
};

// Every third block of keys, some columns, and the diagonal; the last head sees what its neighbour sees.
SparsePattern Stripes(const AttentionCase& c, int64_t keys) {
  SparsePattern pattern{.query_block = 20, .key_block = 8, .heads = {}};
  for (int h = 0; h < c.heads; ++h) {
    SparsePattern::Head head;
    for (int32_t j = h / 2; j < keys; j += 11) head.columns.push_back(j);
    for (int64_t q = 0; q < c.m; q += 20) {
      head.key_blocks.emplace_back();
      for (int64_t j = 0; j <= (keys - c.m + q + 19) / 8; ++j) {
        if (j % 3 == h / 2 % 3 || j >= (keys - c.m + q) / 8) {
          head.key_blocks.back().push_back(static_cast<int32_t>(j));
        }
      }
    }
    pattern.heads.push_back(head);
  }
  return pattern;
}

// More than one chunk of keys, rows that fill an odd number of tiles, head dims on and off whole tiles.
const std::vector<AttentionCase> kMore = {
    {.heads = 4, .kv_heads = 1, .head_dim = 64, .n = 2200, .m = 30},
    {.heads = 2, .kv_heads = 2, .head_dim = 32, .n = 130, .m = 130},
    {.heads = 8, .kv_heads = 2, .head_dim = 96, .n = 64, .m = 64},
    {.heads = 5, .kv_heads = 1, .head_dim = 40, .n = 65, .m = 9, .hole = 2},
};

std::vector<AttentionCase> Cases() {
  std::vector<AttentionCase> cases = testing_kernels::kAttentionCases;
  cases.insert(cases.end(), kMore.begin(), kMore.end());
  return cases;
}

TEST_F(AmxAttention, UsesItsOwnKernels) {
  EXPECT_EQ(amx_->isa(), "amx");
  EXPECT_EQ(amx_->cache_dtype(), DType::kBF16);
  // bf16 rounds queries and weights, fp32 kernels do not: equal bits would mean that the tiles were never
  // used. Exact, because AVX-512 may have bf16 kernels of its own.
  const AttentionData data(kMore[1], DType::kBF16);
  const auto avx512 = MakeCpuBackendForIsa({.threads = 1, .exact = true}, Isa::kAvx512);
  EXPECT_FALSE(testing_kernels::SameBits(Attend(*amx_, data.Input()), Attend(*avx512, data.Input())));
}

TEST_F(AmxAttention, MatchesTheReference) {
  for (const AttentionCase& c : Cases()) {
    SCOPED_TRACE(::testing::PrintToString(c));
    const AttentionData data(c, DType::kBF16);
    const Tensor expected = Attend(*reference_, data.Input());
    testing_kernels::ExpectClose(Attend(*amx_, data.Input()), testing_kernels::ToMatrix(expected.view()),
                                 kTolerance);
    if (HasFatalFailure()) return;
  }
}

TEST_F(AmxAttention, MassMatchesTheReference) {
  for (const AttentionCase& c : Cases()) {
    SCOPED_TRACE(::testing::PrintToString(c));
    const AttentionData data(c, DType::kBF16);
    const Tensor mass = Mass(*amx_, data.Input());
    const Tensor expected = Mass(*reference_, data.Input());
    testing_kernels::ExpectClose(mass, testing_kernels::ToMatrix(expected.view()), kTolerance);
    double total = 0;
    for (float v : mass.view().Row<float>(0)) total += v;
    // Both passes see the same scores. Sinks take what no key has.
    if (!c.sinks) EXPECT_NEAR(total, c.heads * c.m, 1e-3 * c.heads * c.m);
    if (HasFatalFailure()) return;
  }
}

TEST_F(AmxAttention, AQueryIsTheSameInAnyCompany) {
  for (const AttentionCase& c : Cases()) {
    SCOPED_TRACE(::testing::PrintToString(c));
    const AttentionData data(c, DType::kBF16);
    const AttentionInput in = data.Input();
    const Tensor all = Attend(*amx_, in);
    for (int first : {c.m - 1, c.m / 2, c.m / 3}) {
      const int count = std::min(c.m - first, 7);
      AttentionInput some = in;
      some.queries = in.queries.Rows(first, count);
      some.query_positions = in.query_positions.subspan(first, count);
      EXPECT_TRUE(testing_kernels::SameBits(Attend(*amx_, some), all.view().Rows(first, count))) << first;
    }
  }
}

TEST_F(AmxAttention, SparseMatchesTheReferenceInAnyCall) {
  for (const AttentionCase& c : Cases()) {
    SCOPED_TRACE(::testing::PrintToString(c));
    const AttentionData data(c, DType::kBF16);
    const AttentionInput in = data.Input();
    const SparsePattern pattern = Stripes(c, in.keys.rows);
    const Tensor out = Sparse(*amx_, in, pattern);
    const Tensor expected = Sparse(*reference_, in, pattern);
    testing_kernels::ExpectClose(out, testing_kernels::ToMatrix(expected.view()), kTolerance);
    if (HasFatalFailure()) return;
    for (int first : {c.m - 1, c.m / 2, c.m / 3}) {
      const int count = std::min(c.m - first, 23);
      AttentionInput some = in;
      some.queries = in.queries.Rows(first, count);
      some.query_positions = in.query_positions.subspan(first, count);
      EXPECT_TRUE(
          testing_kernels::SameBits(Sparse(*amx_, some, pattern, first), out.view().Rows(first, count)));
    }
  }
}

TEST_F(AmxAttention, APatternOfEverythingIsDenseAttention) {
  for (const AttentionCase& c : Cases()) {
    SCOPED_TRACE(::testing::PrintToString(c));
    const AttentionData data(c, DType::kBF16);
    SparsePattern pattern{
        .query_block = 64, .key_block = 0, .heads = std::vector<SparsePattern::Head>(c.heads)};
    for (SparsePattern::Head& head : pattern.heads) {
      for (int32_t j = 0; j < data.keys.rows(); ++j) head.columns.push_back(j);
    }
    EXPECT_TRUE(testing_kernels::SameBits(Sparse(*amx_, data.Input(), pattern), Attend(*amx_, data.Input())));
  }
}

TEST_F(AmxAttention, ThreadsChangeNothing) {
  const auto one = MakeCpuBackendForIsa({.threads = 1, .exact = false}, Isa::kAmx);
  const auto three = MakeCpuBackendForIsa({.threads = 3, .exact = false}, Isa::kAmx);
  for (const AttentionCase& c : {kMore[0], kMore[3]}) {
    const AttentionData data(c, DType::kBF16);
    EXPECT_TRUE(testing_kernels::SameBits(Attend(*one, data.Input()), Attend(*three, data.Input())));
    EXPECT_TRUE(testing_kernels::SameBits(Mass(*one, data.Input()), Mass(*three, data.Input())));
  }
}

}  // namespace
}  // namespace coppice
