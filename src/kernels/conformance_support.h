// Shared by the conformance tests: the backends under test, random data, comparison, and attention in fp64.
//
// Every backend, including the reference backend, is compared with the same oracle: fp64 formulas that
// materialise everything. COPPICE_ISA chooses the kernels of the cpu backend, so one run of the program tests
// one instruction set.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "base/cpu_info.h"
#include "base/error.h"
#include "formats/quants.h"
#include "kernels/backend.h"
#include "tests_support.h"

namespace coppice::testing_kernels {

struct Config {
  std::string name;
  bool exact = true;
  bool int8_values = false;  // AttentionShape::int8_values
  int key_bits = 0;          // AttentionShape::key_bits
};
inline std::string NameOf(const Config& c) {
  const char* bits = c.key_bits == 8    ? "_int8"
                     : c.key_bits == 16 ? "_int16_keys"
                     : c.int8_values    ? "_int8_values"
                                        : "";
  return c.name + (c.exact ? "_exact" : "_fast") + bits;
}
inline void PrintTo(const Config& c, std::ostream* out) { *out << NameOf(c); }
inline std::string ConfigName(const ::testing::TestParamInfo<Config>& info) { return NameOf(info.param); }
inline const std::vector<Config> kConfigs = {
    {"reference", true}, {"cpu", true}, {"cpu", false}, {"gpu", false}};
inline const std::vector<Config> kAttentionConfigs = {
    {"reference", true},      {"cpu", true}, {"cpu", false}, {"cpu", false, true}, {"cpu", false, true, 8},
    {"cpu", false, true, 16}, {"gpu", false}};

inline Tensor Random(int64_t rows, int64_t cols, uint32_t seed, float scale = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, scale);
  Tensor t(DType::kF32, rows, cols);
  for (int64_t i = 0; i < rows; ++i) {
    for (float& v : t.mutable_view().Row<float>(i)) v = normal(generator);
  }
  return t;
}

// Random quantised blocks. Any bytes are valid codes and scales; only the fp16 factors must stay small.
inline Tensor RandomBlocks(DType type, int64_t rows, int64_t cols, uint32_t seed) {
  struct Factors {
    DType type;
    std::vector<int> offsets;
  };
  static const std::vector<Factors> kFactors = {
      {DType::kQ4_0, {0}},    {DType::kQ4_1, {0, 2}},   {DType::kQ5_0, {0}},   {DType::kQ5_1, {0, 2}},
      {DType::kQ8_0, {0}},    {DType::kQ2_K, {80, 82}}, {DType::kQ3_K, {108}}, {DType::kQ4_K, {0, 2}},
      {DType::kQ5_K, {0, 2}}, {DType::kQ6_K, {208}},    {DType::kIQ4_NL, {0}}, {DType::kIQ4_XS, {0}},
      {DType::kIQ2_XXS, {0}}, {DType::kIQ2_XS, {0}},    {DType::kIQ2_S, {0}},  {DType::kIQ3_XXS, {0}},
      {DType::kIQ3_S, {0}}};
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> factor(-0.02f, 0.02f);
  Tensor t(type, rows, cols);
  std::byte* bytes = t.mutable_view().data;
  for (int64_t i = 0; i < t.bytes(); ++i) bytes[i] = static_cast<std::byte>(generator());
  for (int64_t block = 0; type == DType::kMXFP4 && block < t.bytes(); block += Info(type).block_bytes) {
    bytes[block] = static_cast<std::byte>(121 + generator() % 3);  // scales of 2^-7 to 2^-5
  }
  for (const Factors& f : kFactors) {
    if (f.type != type) continue;
    for (int64_t block = 0; block < t.bytes(); block += Info(type).block_bytes) {
      for (int offset : f.offsets) {
        const F16 value = ToF16(factor(generator));
        std::memcpy(bytes + block + offset, &value, sizeof value);
      }
    }
  }
  return t;
}

inline Tensor Converted(const TensorView& x, DType type) {
  Tensor t(type, x.rows, x.cols);
  for (int64_t i = 0; i < x.rows; ++i) {
    if (type == DType::kQ8_0) QuantizeRow(type, x.Row<float>(i), t.mutable_view().RowBytes(i));
    for (int64_t c = 0; c < x.cols; ++c) {
      const float v = x.Row<float>(i)[c];
      if (type == DType::kF32) t.mutable_view().Row<float>(i)[c] = v;
      if (type == DType::kF16) t.mutable_view().Row<F16>(i)[c] = ToF16(v);
      if (type == DType::kBF16) t.mutable_view().Row<BF16>(i)[c] = ToBF16(v);
    }
  }
  return t;
}

inline Tensor Converted(const Tensor& x, DType type) { return Converted(x.view(), type); }

inline Tensor RandomWeight(DType type, int64_t rows, int64_t cols, uint32_t seed) {
  if (Info(type).block_elements > 1) return RandomBlocks(type, rows, cols, seed);
  return Converted(Random(rows, cols, seed, 0.1f), type);
}

using Matrix = std::vector<std::vector<double>>;

inline Matrix ToMatrix(const TensorView& t) {
  Matrix m(t.rows, std::vector<double>(t.cols));
  std::vector<float> row(t.cols);
  for (int64_t i = 0; i < t.rows; ++i) {
    DequantizeRow(t.dtype, t.RowBytes(i), row);
    std::copy(row.begin(), row.end(), m[i].begin());
  }
  return m;
}

inline double Rms(const std::vector<double>& row) {
  double sum = 0;
  for (double v : row) sum += v * v;
  return row.empty() ? 0 : std::sqrt(sum / row.size());
}

// For each row, rms(actual - expected) <= tolerance * rms(expected), and no value is off by more than eight
// times that. A row that cancels to nearly zero is compared with the typical row instead.
inline void ExpectClose(const TensorView& actual, const Matrix& expected, double tolerance) {
  ASSERT_EQ(actual.rows, static_cast<int64_t>(expected.size()));
  double typical = 0;
  for (const std::vector<double>& row : expected) typical += Rms(row) / expected.size();
  for (int64_t i = 0; i < actual.rows; ++i) {
    ASSERT_EQ(actual.cols, static_cast<int64_t>(expected[i].size()));
    std::vector<double> off(actual.cols);
    double worst = 0;
    for (int64_t c = 0; c < actual.cols; ++c) {
      off[c] = actual.Row<float>(i)[c] - expected[i][c];
      ASSERT_TRUE(std::isfinite(off[c])) << "row " << i << " column " << c << ": " << actual.Row<float>(i)[c];
      worst = std::max(worst, std::abs(off[c]));
    }
    const double allowed = tolerance * std::max(Rms(expected[i]), typical);
    ASSERT_LE(Rms(off), allowed) << "row " << i;
    ASSERT_LE(worst, 8 * allowed) << "row " << i;
  }
}

inline void ExpectClose(const Tensor& actual, const Matrix& expected, double tolerance) {
  ExpectClose(actual.view(), expected, tolerance);
}

inline bool SameBits(const TensorView& a, const TensorView& b) {
  if (a.dtype != b.dtype || a.rows != b.rows || a.cols != b.cols) return false;
  for (int64_t i = 0; i < a.rows; ++i) {
    if (std::memcmp(a.RowBytes(i), b.RowBytes(i), BytesOf(a.dtype, a.cols)) != 0) return false;
  }
  return true;
}

inline bool SameBits(const Tensor& a, const TensorView& b) { return SameBits(a.view(), b); }
inline bool SameBits(const Tensor& a, const Tensor& b) { return SameBits(a.view(), b.view()); }

// ---- Attention

struct AttentionCase {
  int heads, kv_heads, head_dim;
  int n;         // positions [0, n)
  int m;         // queries, at the last m positions
  int hole = 0;  // every hole-th position has no key, unless a query has that position
  int window = 0;
  bool alibi = false;
  bool together = false;  // all queries are at the last position
  bool sinks = false;
};
inline void PrintTo(const AttentionCase& c, std::ostream* out) {
  *out << c.heads << "/" << c.kv_heads << " heads of " << c.head_dim << ", n " << c.n << ", m " << c.m
       << ", hole " << c.hole << ", window " << c.window << (c.alibi ? ", alibi" : "")
       << (c.together ? ", all at the last position" : "") << (c.sinks ? ", sinks" : "");
}

inline const std::vector<AttentionCase> kAttentionCases = {
    {.heads = 1, .kv_heads = 1, .head_dim = 4, .n = 1, .m = 1},
    {.heads = 2, .kv_heads = 1, .head_dim = 8, .n = 5, .m = 5},
    {.heads = 3, .kv_heads = 3, .head_dim = 4, .n = 19, .m = 19},
    {.heads = 4, .kv_heads = 4, .head_dim = 64, .n = 33, .m = 33},
    {.heads = 4, .kv_heads = 2, .head_dim = 80, .n = 70, .m = 70},
    {.heads = 4, .kv_heads = 1, .head_dim = 128, .n = 150, .m = 37},
    {.heads = 7, .kv_heads = 1, .head_dim = 64, .n = 129, .m = 129},
    {.heads = 14, .kv_heads = 2, .head_dim = 64, .n = 100, .m = 1},
    {.heads = 2, .kv_heads = 1, .head_dim = 64, .n = 700, .m = 260},
    {.heads = 4, .kv_heads = 2, .head_dim = 64, .n = 200, .m = 200, .window = 50},
    {.heads = 4, .kv_heads = 2, .head_dim = 64, .n = 90, .m = 90, .window = 1},
    {.heads = 4, .kv_heads = 4, .head_dim = 64, .n = 111, .m = 111, .alibi = true},
    {.heads = 4, .kv_heads = 1, .head_dim = 8, .n = 90, .m = 90, .window = 30, .alibi = true},
    {.heads = 4, .kv_heads = 2, .head_dim = 64, .n = 300, .m = 50, .hole = 3},
    {.heads = 4, .kv_heads = 2, .head_dim = 8, .n = 40, .m = 40, .sinks = true},
    {.heads = 6, .kv_heads = 2, .head_dim = 64, .n = 600, .m = 170, .window = 128, .sinks = true},
    {.heads = 7, .kv_heads = 1, .head_dim = 128, .n = 257, .m = 4, .hole = 2, .alibi = true},
    {.heads = 2, .kv_heads = 2, .head_dim = 80, .n = 140, .m = 30, .hole = 2, .window = 40},
    {.heads = 4, .kv_heads = 2, .head_dim = 64, .n = 140, .m = 30, .window = 40, .together = true},
    {.heads = 4, .kv_heads = 1, .head_dim = 256, .n = 190, .m = 70, .window = 60},
    {.heads = 8, .kv_heads = 4, .head_dim = 256, .n = 77, .m = 5, .hole = 2},
};

// Owns the data of an AttentionInput.
struct AttentionData {
  AttentionData(const AttentionCase& c, DType cache, uint32_t seed = 1) {
    for (int p = 0; p < c.n; ++p) {
      const bool query = p >= c.n - c.m;
      if (query) query_positions.push_back(p);
      if (query || c.hole == 0 || p % c.hole != 1) key_positions.push_back(p);
    }
    if (c.together) std::fill(query_positions.begin(), query_positions.end(), c.n - 1);
    // Far below the scores, among them, and far above.
    for (int h = 0; c.sinks && h < c.heads; ++h)
      sinks.push_back(h == 1 ? 40 : 1.5f * static_cast<float>(h) - 3);
    for (int h = 0; c.alibi && h < c.heads; ++h) slopes.push_back(std::exp2(-8.0f * (h + 1) / c.heads));
    const int64_t n = static_cast<int64_t>(key_positions.size());
    queries = Random(c.m, c.heads * c.head_dim, seed, 1.5f);
    keys = Converted(Random(n, c.kv_heads * c.head_dim, seed + 1), cache);
    values = Converted(Random(n, c.kv_heads * c.head_dim, seed + 2), cache);
    shape = {.heads = c.heads,
             .kv_heads = c.kv_heads,
             .head_dim = c.head_dim,
             .scale = 1 / std::sqrt(static_cast<float>(c.head_dim)),
             .window = c.window,
             .alibi_slopes = {}};
  }
  AttentionInput Input() const {
    AttentionInput in{shape, queries.view(), keys.view(), values.view(), query_positions, key_positions};
    in.shape.alibi_slopes = slopes;
    in.shape.sinks = sinks;
    in.shape.int8_values = int8_values;
    in.shape.key_bits = key_bits;
    return in;
  }
  // Config's of the test.
  static inline bool int8_values = false;
  static inline int key_bits = 0;
  AttentionShape shape;
  std::vector<float> slopes, sinks;
  std::vector<int32_t> query_positions, key_positions;
  Tensor queries, keys, values;
};

// Some queries of a call.
inline AttentionInput RowsOf(const AttentionInput& in, int64_t first, int64_t count) {
  AttentionInput some = in;
  some.queries = in.queries.Rows(first, count);
  some.query_positions = in.query_positions.subspan(first, count);
  return some;
}

// A call over the first rows of the cache only.
inline AttentionInput FirstKeys(const AttentionInput& in, int64_t count) {
  AttentionInput some = in;
  some.keys = in.keys.Rows(0, count);
  some.values = in.values.Rows(0, count);
  some.key_positions = in.key_positions.first(count);
  return some;
}

// One kv head of a call.
inline AttentionInput HeadOf(const AttentionInput& in, int kv_head) {
  const int group = in.shape.heads / in.shape.kv_heads;
  const int64_t dim = in.shape.head_dim;
  AttentionInput one = in;
  one.shape = in.shape.OfHeads(kv_head * group, group, 1);
  one.queries = in.queries.Cols(kv_head * group * dim, group * dim);
  one.keys = in.keys.Cols(kv_head * dim, dim);
  one.values = in.values.Cols(kv_head * dim, dim);
  one.first_kv_head = in.first_kv_head + kv_head;
  return one;
}

class ConformanceTest : public ::testing::TestWithParam<Config> {
 protected:
  void SetUp() override {
    AttentionData::int8_values = GetParam().int8_values;
    AttentionData::key_bits = GetParam().key_bits;
    backend_ = Make(2);
    if (!backend_) GTEST_SKIP() << "this machine lacks the instruction set that COPPICE_ISA names, or a GPU";
  }
  void TearDown() override {  // other tests have no Config
    AttentionData::int8_values = false;
    AttentionData::key_bits = 0;
  }
  std::unique_ptr<Backend> Make(int threads) const {
    return MakeBackendOrSkip(GetParam().name, {.threads = threads, .exact = GetParam().exact});
  }
  Backend& be() { return *backend_; }
  // kAttentionCases that the backend takes; Backend::CheckNeeds refuses the others.
  std::vector<AttentionCase> Cases() {
    std::vector<AttentionCase> cases = kAttentionCases;
    std::erase_if(cases, [&](const AttentionCase& c) { return !Takes(c); });
    return cases;
  }
  bool Takes(const AttentionCase& c) { return be().name() != "gpu" || (c.head_dim <= 128 && !c.sinks); }
  bool Gates(Activation activation) { return activation == Activation::kSilu || be().name() != "gpu"; }
  static double Gated(Activation activation, double g, double u) {
    if (activation == Activation::kSilu) return g / (1 + std::exp(-g)) * u;
    if (activation == Activation::kGelu)
      return 0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * u;
    if (activation == Activation::kIdentity) return g * u;
    if (activation == Activation::kRelu) return std::max(g, 0.0) * u;
    if (activation == Activation::kSigmoid) return u / (1 + std::exp(-g));
    const double h = std::min(g, 7.0);
    return h / (1 + std::exp(-1.702 * h)) * (std::clamp(u, -7.0, 7.0) + 1);
  }
  // For products and attention: fp32, or bf16 inputs with fp32 sums, or 8-bit codes. On a GPU, queries are
  // rounded to bf16 too. With key_bits of 8, all four factors of attention are in 8 bits.
  double tolerance() const {
    if (GetParam().exact) return 1e-5;
    if (GetParam().key_bits == 8) return 4e-2;
    return GetParam().name == "gpu" ? 3e-2 : 2.5e-2;
  }

 private:
  std::unique_ptr<Backend> backend_;
};

// Of operations that only layers with a state need.
class StateConformanceTest : public ConformanceTest {
 protected:
  void SetUp() override {
    ConformanceTest::SetUp();
    if (IsSkipped() || be().memory() == nullptr) return;
    EXPECT_THROW(be().CheckNeeds({.head_dim = 64, .recurrence = true}), Error);
    GTEST_SKIP() << "CheckNeeds refuses layers with a state";
  }
};

using Mask = std::vector<std::vector<bool>>;  // [m][n], true if the pair exists; empty: all pairs

// softmax(scale q k^T + bias + mask) of one head, materialised [m][n].
inline Matrix NaiveWeights(const AttentionInput& in, int head, const Mask& mask = {}) {
  const Matrix q = ToMatrix(in.queries);
  const Matrix k = ToMatrix(in.keys);
  const int dim = in.shape.head_dim;
  const int kv = head / (in.shape.heads / in.shape.kv_heads);
  Matrix a(q.size(), std::vector<double>(k.size()));
  for (size_t i = 0; i < q.size(); ++i) {
    double max = -std::numeric_limits<double>::infinity();
    for (size_t j = 0; j < k.size(); ++j) {
      const int distance = in.query_positions[i] - in.key_positions[j];
      double s = 0;
      for (int c = 0; c < dim; ++c) s += q[i][head * dim + c] * k[j][kv * dim + c];
      s *= in.shape.scale;
      if (!in.shape.alibi_slopes.empty()) s -= in.shape.alibi_slopes[head] * distance;
      const bool seen = distance >= 0 && (in.shape.window == 0 || distance < in.shape.window) &&
                        (mask.empty() || mask[i][j]);
      a[i][j] = seen ? s : -std::numeric_limits<double>::infinity();
      max = std::max(max, a[i][j]);
    }
    double sum = in.shape.sinks.empty() ? 0 : std::exp(in.shape.sinks[head] - max);
    for (double& w : a[i]) sum += w = std::exp(w - max);
    for (double& w : a[i]) w /= sum;
  }
  return a;
}

// `masks` is indexed by head, or empty.
inline Matrix NaiveAttention(const AttentionInput& in, const std::vector<Mask>& masks = {}) {
  const Matrix v = ToMatrix(in.values);
  const int dim = in.shape.head_dim;
  Matrix out(in.queries.rows, std::vector<double>(in.queries.cols, 0.0));
  for (int h = 0; h < in.shape.heads; ++h) {
    const Matrix a = NaiveWeights(in, h, masks.empty() ? Mask() : masks[h]);
    const int kv = h / (in.shape.heads / in.shape.kv_heads);
    for (size_t i = 0; i < out.size(); ++i) {
      for (size_t j = 0; j < v.size(); ++j) {
        for (int c = 0; c < dim; ++c) out[i][h * dim + c] += a[i][j] * v[j][kv * dim + c];
      }
    }
  }
  return out;
}

}  // namespace coppice::testing_kernels
