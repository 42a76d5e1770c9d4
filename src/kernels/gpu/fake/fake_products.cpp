// Products by weights in the layouts of kernels/README.md, and rows of such a weight.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <type_traits>
#include <vector>

#include "kernels/gpu/fake/fake_kernels.h"
#include "tensor/dtype.h"

namespace coppice::gpu::fake {

namespace {

float Rounded(float x) { return ToFloat(ToBF16(x)); }

// The values of row `row` of a weight, of which a tile of 128 rows must exist.
template <int kBits, bool kSuper>
std::vector<float> WeightRow(const KernelCall& k, int64_t row) {
  const int64_t width = k.I("k");
  const int64_t group = kBits == 16 ? 1 : k.I("group");
  const bool minima = (k.I("flags") & 1) != 0;
  std::vector<float> values(static_cast<size_t>(width));
  if constexpr (kBits == 16) {
    const BF16* codes = k.P<BF16>("codes", width, row * width);
    for (int64_t c = 0; c < width; ++c) values[static_cast<size_t>(c)] = ToFloat(codes[c]);
    return values;
  }
  const uint8_t* codes = k.P<uint8_t>("codes", width * kBits / 8, row * width * kBits / 8);
  const int64_t supers = kSuper ? (width + 255) / 256 : width / 32;
  const F16* scales = k.P<F16>("scales", supers, row * supers);
  const F16* mins = minima ? k.P<F16>("mins", supers, row * supers) : nullptr;
  const int64_t groups = kSuper ? width / group : 0;
  const int8_t* factors = kSuper ? k.P<int8_t>("groups", groups, row * groups) : nullptr;
  const uint8_t* offsets = kSuper && minima ? k.P<uint8_t>("group_mins", groups, row * groups) : nullptr;
  for (int64_t c = 0; c < width; ++c) {
    const float code = kBits == 8 ? static_cast<float>(static_cast<int8_t>(codes[c]))
                                  : static_cast<float>(codes[c / 2] >> (c % 2 * 4) & 15);
    const int64_t block = kSuper ? c / 256 : c / 32;
    float scale = ToFloat(scales[block]);
    float minimum = minima ? ToFloat(mins[block]) : 0;
    if (kSuper) {
      scale *= static_cast<float>(factors[c / group]);
      minimum = minima ? -minimum * static_cast<float>(offsets[c / group]) : 0;
    }
    values[static_cast<size_t>(c)] = std::fma(code - k.F("zero"), scale, minimum);
  }
  return values;
}

float Bias(const KernelCall& k, int64_t column) {
  return (k.I("flags") & 2) != 0 ? *k.P<float>("bias", 1, column) : 0;
}

using Matrix = std::vector<std::vector<float>>;

// The rows of x, rounded to bf16.
template <typename X>
Matrix RowsOfX(const KernelCall& k, int64_t rows, int64_t width) {
  Matrix matrix;
  for (int64_t i = 0; i < rows; ++i) {
    const X* x = k.P<X>("x", width, i * k.I("sx"));
    std::vector<float>& row = matrix.emplace_back(static_cast<size_t>(width));
    for (int64_t c = 0; c < width; ++c) {
      if constexpr (std::is_same_v<X, BF16>)
        row[static_cast<size_t>(c)] = ToFloat(x[c]);
      else
        row[static_cast<size_t>(c)] = Rounded(x[c]);
    }
  }
  return matrix;
}

// x w^T of every row. In sixteen sums, so that the compiler can keep them in vector registers.
std::vector<float> Dots(const Matrix& x, std::vector<float> w) {
  for (float& value : w) value = Rounded(value);
  std::vector<float> dots;
  for (const std::vector<float>& row : x) {
    float sums[16] = {};
    for (size_t c = 0; c < row.size(); ++c) sums[c % 16] += row[c] * w[c];
    dots.push_back(std::accumulate(sums, sums + 16, 0.0f));
  }
  return dots;
}

// Stores column j of y, or adds to it.
void StoreColumn(const KernelCall& k, int64_t j, const std::vector<float>& values) {
  const bool add = (k.I("flags") & 4) != 0;
  const int64_t stride = k.I("sy");
  float* y = k.P<float>("y", (std::ssize(values) - 1) * stride + 1, j);
  for (size_t i = 0; i < values.size(); ++i) {
    float& to = y[static_cast<int64_t>(i) * stride];
    to = add ? values[i] + to : values[i];
  }
}

template <int kBits, bool kSuper>
void Product(const KernelCall& k) {
  const bool gated = (k.I("flags") & 8) != 0;
  const int64_t rows = k.I("rows");
  const int64_t outputs = k.I("outputs");
  const int64_t weight_rows = gated ? 2 * outputs : outputs;
  k.CheckGrid(CeilDiv(rows, 128) * CeilDiv(weight_rows, 128));
  WeightRow<kBits, kSuper>(k, (weight_rows + 127) / 128 * 128 - 1);  // the kernel reads whole tiles
  const Matrix x = RowsOfX<BF16>(k, rows, k.I("k"));
  for (int64_t j = 0; j < outputs; ++j) {
    std::vector<float> y = Dots(x, WeightRow<kBits, kSuper>(k, gated ? 2 * j : j));
    const float bias = Bias(k, j);
    for (float& value : y) value += bias;
    if (gated) {
      const std::vector<float> up = Dots(x, WeightRow<kBits, kSuper>(k, 2 * j + 1));
      const float up_bias = Bias(k, outputs + j);
      for (size_t i = 0; i < y.size(); ++i) y[i] = y[i] / (1 + std::exp(-y[i])) * (up[i] + up_bias);
    }
    StoreColumn(k, j, y);
  }
}

template <int kBits, bool kSuper>
void DecodeProduct(const KernelCall& k) {
  const int64_t rows = k.I("rows");
  const int64_t outputs = k.I("outputs");
  k.CheckGrid(CeilDiv(outputs, 32), CeilDiv(rows, 16));
  WeightRow<kBits, kSuper>(k, (outputs + 31) / 32 * 32 - 1);
  const Matrix x = RowsOfX<float>(k, rows, k.I("inputs"));
  for (int64_t j = 0; j < outputs; ++j) {
    std::vector<float> y = Dots(x, WeightRow<kBits, kSuper>(k, j));
    const float bias = Bias(k, j);
    for (float& value : y) value += bias;
    StoreColumn(k, j, y);
  }
}

template <int kBits, bool kSuper>
void Embed(const KernelCall& k) {
  const int64_t m = k.I("m");
  k.CheckGrid(CeilDiv(m, 8), CeilDiv(k.I("d"), 128));
  const int32_t* ids = k.P<int32_t>("ids", m);
  for (int64_t i = 0; i < m; ++i) {
    const std::vector<float> row = WeightRow<kBits, kSuper>(k, ids[i]);
    std::copy_n(row.begin(), k.I("d"), k.P<float>("y", k.I("d"), i * k.I("sy")));
  }
}

#define COPPICE_WEIGHT(type) "codes:" type "*! scales:f16*! mins:f16*! groups:i8*! group_mins:u8*! "
#define COPPICE_PRODUCT(type) \
  "x:bf16*! " COPPICE_WEIGHT(type) "bias:f32* y:f32* rows:i32 outputs:i32 k:i32! sx:i32! sy:i32 zero:f32 " \
                                   "group:i32 flags:i32"
#define COPPICE_DECODE(type) \
  "x:f32* " COPPICE_WEIGHT(type) "bias:f32* y:f32* rows:i32 outputs:i32 inputs:i32 k:i32! sx:i32 sy:i32 " \
                                 "zero:f32 group:i32 flags:i32"
#define COPPICE_EMBED(type) \
  COPPICE_WEIGHT(type) "ids:i32* y:f32* m:i32 d:i32 k:i32! sy:i32 zero:f32 group:i32 flags:i32"

constexpr FakeKernel kProductKernels[] = {
    {"product_bf16", COPPICE_PRODUCT("bf16"), 8, Product<16, false>},
    {"product_q8", COPPICE_PRODUCT("i8"), 8, Product<8, false>},
    {"product_q4", COPPICE_PRODUCT("u8"), 8, Product<4, false>},
    {"product_q8k", COPPICE_PRODUCT("i8"), 8, Product<8, true>},
    {"product_q4k", COPPICE_PRODUCT("u8"), 8, Product<4, true>},
    {"decode_product_bf16", COPPICE_DECODE("bf16"), 4, DecodeProduct<16, false>},
    {"decode_product_q8", COPPICE_DECODE("i8"), 4, DecodeProduct<8, false>},
    {"decode_product_q4", COPPICE_DECODE("u8"), 4, DecodeProduct<4, false>},
    {"decode_product_q8k", COPPICE_DECODE("i8"), 4, DecodeProduct<8, true>},
    {"decode_product_q4k", COPPICE_DECODE("u8"), 4, DecodeProduct<4, true>},
    {"embed_q8", COPPICE_EMBED("i8"), 4, Embed<8, false>},
    {"embed_q4", COPPICE_EMBED("u8"), 4, Embed<4, false>},
    {"embed_q8k", COPPICE_EMBED("i8"), 4, Embed<8, true>},
    {"embed_q4k", COPPICE_EMBED("u8"), 4, Embed<4, true>},
};

}  // namespace

std::span<const FakeKernel> ProductKernels() { return kProductKernels; }

}  // namespace coppice::gpu::fake
