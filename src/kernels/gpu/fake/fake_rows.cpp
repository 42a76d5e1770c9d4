// Norms, RoPE, activations, moves and conversions of rows.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "formats/quants.h"
#include "kernels/gpu/fake/fake_kernels.h"
#include "tensor/dtype.h"

namespace coppice::gpu::fake {

namespace {

void RmsNorm(const KernelCall& k) {
  k.CheckGrid(kAny);
  const int64_t d = k.I("d");
  const float* weight = k.P<float>("weight", d);
  for (int64_t i = 0; i < k.grid(0); ++i) {
    const float* x = k.P<float>("x", d, i * k.I("sx"));
    float* y = k.P<float>("y", d, i * k.I("sy"));
    double sum = 0;
    for (int64_t c = 0; c < d; ++c) sum += static_cast<double>(x[c]) * x[c];
    const float factor = 1 / std::sqrt(static_cast<float>(sum / static_cast<double>(d)) + k.F("eps"));
    for (int64_t c = 0; c < d; ++c) y[c] = x[c] * factor * weight[c];
  }
}

void LayerNorm(const KernelCall& k) {
  k.CheckGrid(kAny);
  const int64_t d = k.I("d");
  const float* weight = k.P<float>("weight", d);
  const float* bias = k.P<float>("bias", d);
  for (int64_t i = 0; i < k.grid(0); ++i) {
    const float* x = k.P<float>("x", d, i * k.I("sx"));
    float* y = k.P<float>("y", d, i * k.I("sy"));
    double mean = 0;
    for (int64_t c = 0; c < d; ++c) mean += x[c];
    mean /= static_cast<double>(d);
    double variance = 0;
    for (int64_t c = 0; c < d; ++c) variance += (x[c] - mean) * (x[c] - mean);
    const double factor = 1 / std::sqrt(variance / static_cast<double>(d) + static_cast<double>(k.F("eps")));
    for (int64_t c = 0; c < d; ++c) y[c] = static_cast<float>((x[c] - mean) * factor) * weight[c] + bias[c];
  }
}

void Rope(const KernelCall& k) {
  k.CheckGrid(kAny, kAny);
  const int64_t dim = k.I("head_dim");
  const int64_t pairs = k.I("pairs");
  const bool interleaved = k.I("interleaved") != 0;
  const int32_t* positions = k.P<int32_t>("positions", k.grid(0));
  for (int64_t i = 0; i < k.grid(0); ++i) {
    const float* cos = k.P<float>("cos", pairs, positions[i] * k.I("st"));
    const float* sin = k.P<float>("sin", pairs, positions[i] * k.I("st"));
    for (int64_t head = 0; head < k.grid(1); ++head) {
      float* x = k.P<float>("x", dim, i * k.I("sx") + head * dim);
      for (int64_t p = 0; p < pairs; ++p) {
        float& a = x[interleaved ? 2 * p : p];
        float& b = x[interleaved ? 2 * p + 1 : p + pairs];
        const float rotated = a * cos[p] - b * sin[p];
        b = a * sin[p] + b * cos[p];
        a = rotated;
      }
    }
  }
}

void SiluMul(const KernelCall& k) {
  k.CheckGrid(kAny, CeilDiv(k.I("d"), 1024));
  const int64_t d = k.I("d");
  for (int64_t i = 0; i < k.grid(0); ++i) {
    float* gate = k.P<float>("gate", d, i * k.I("sx"));
    const float* up = k.P<float>("up", d, i * k.I("sy"));
    for (int64_t c = 0; c < d; ++c) gate[c] = gate[c] / (1 + std::exp(-gate[c])) * up[c];
  }
}

void Gelu(const KernelCall& k) {
  k.CheckGrid(kAny, CeilDiv(k.I("d"), 1024));
  const int64_t d = k.I("d");
  for (int64_t i = 0; i < k.grid(0); ++i) {
    float* x = k.P<float>("x", d, i * k.I("sx"));
    for (int64_t c = 0; c < d; ++c) {
      const float inner = 0.79788456f * x[c] * (1 + 0.044715f * x[c] * x[c]);
      x[c] = 0.5f * x[c] * (1 + std::tanh(inner));
    }
  }
}

void Add(const KernelCall& k) {
  k.CheckGrid(kAny, CeilDiv(k.I("d"), 1024));
  const int64_t d = k.I("d");
  for (int64_t i = 0; i < k.grid(0); ++i) {
    const float* x = k.P<float>("x", d, i * k.I("sx"));
    float* y = k.P<float>("y", d, i * k.I("sy"));
    for (int64_t c = 0; c < d; ++c) y[c] += x[c];
  }
}

void ScatterAdd(const KernelCall& k) {
  k.CheckGrid(kAny, CeilDiv(k.I("d"), 1024));
  const int64_t d = k.I("d");
  const int32_t* rows = k.P<int32_t>("rows", k.grid(0));
  for (int64_t i = 0; i < k.grid(0); ++i) {
    const float* x = k.P<float>("x", d, i * k.I("sx"));
    float* y = k.P<float>("y", d, rows[i] * k.I("sy"));
    for (int64_t c = 0; c < d; ++c) y[c] += x[c];
  }
}

// The rows in reverse, as no order of the device's programs is promised.
template <typename T>
void Gather(const KernelCall& k) {
  k.CheckGrid(kAny, CeilDiv(k.I("d"), 1024));
  const int64_t d = k.I("d");
  const int32_t* rows = k.P<int32_t>("rows", k.grid(0));
  for (int64_t i = k.grid(0) - 1; i >= 0; --i) {
    const T* x = k.P<T>("x", d, rows[i] * k.I("sx"));
    std::copy_n(x, d, k.P<T>("y", d, i * k.I("sy")));
  }
}

float Widen(float x) { return x; }
float Widen(F16 x) { return ToFloat(x); }
float Widen(BF16 x) { return ToFloat(x); }
void Narrow(float x, float& y) { y = x; }
void Narrow(float x, F16& y) { y = ToF16(x); }
void Narrow(float x, BF16& y) { y = ToBF16(x); }

template <typename From, typename To>
void Convert(const KernelCall& k) {
  k.CheckGrid(kAny, CeilDiv(k.I("width"), 1024));
  const int64_t d = k.I("d");
  const int64_t width = k.I("width");
  for (int64_t i = 0; i < k.grid(0); ++i) {
    const From* x = k.P<From>("x", d, i * k.I("sx"));
    To* y = k.P<To>("y", width, i * k.I("sy"));
    for (int64_t c = 0; c < width; ++c) Narrow(c < d ? Widen(x[c]) : 0.0f, y[c]);
  }
}

void ToQ8(const KernelCall& k) {
  k.CheckGrid(kAny, CeilDiv(k.I("d") / 32, 32));
  const int64_t d = k.I("d");
  for (int64_t i = 0; i < k.grid(0); ++i) {
    const float* x = k.P<float>("x", d, i * k.I("sx"));
    QuantizeRow(DType::kQ8_0, {x, static_cast<size_t>(d)},
                k.P<std::byte>("y", BytesOf(DType::kQ8_0, d), i * k.I("sy")));
  }
}

void FromQ8(const KernelCall& k) {
  k.CheckGrid(kAny, CeilDiv(k.I("d") / 32, 32));
  const int64_t d = k.I("d");
  std::vector<float> row(static_cast<size_t>(d));
  for (int64_t i = 0; i < k.grid(0); ++i) {
    DequantizeRow(DType::kQ8_0, k.P<std::byte>("x", BytesOf(DType::kQ8_0, d), i * k.I("sx")), row);
    BF16* y = k.P<BF16>("y", d, i * k.I("sy"));
    for (int64_t c = 0; c < d; ++c) y[c] = ToBF16(row[static_cast<size_t>(c)]);
  }
}

template <typename T>
void Embed(const KernelCall& k) {
  k.CheckGrid(kAny, CeilDiv(k.I("d"), 1024));
  const int64_t d = k.I("d");
  const int32_t* ids = k.P<int32_t>("ids", k.grid(0));
  for (int64_t i = 0; i < k.grid(0); ++i) {
    const T* from = k.P<T>("table", d, ids[i] * k.I("sx"));
    float* y = k.P<float>("y", d, i * k.I("sy"));
    for (int64_t c = 0; c < d; ++c) y[c] = Widen(from[c]);
  }
}

constexpr FakeKernel kRowKernels[] = {
    {"rms_norm", "x:f32* weight:f32* y:f32* d:i32 sx:i32 sy:i32 eps:f32", 4, RmsNorm},
    {"layer_norm", "x:f32* weight:f32* bias:f32* y:f32* d:i32 sx:i32 sy:i32 eps:f32", 4, LayerNorm},
    {"rope", "x:f32* positions:i32* cos:f32* sin:f32* head_dim:i32 pairs:i32 sx:i32 st:i32 interleaved:i32",
     1, Rope},
    {"silu_mul", "gate:f32* up:f32* d:i32 sx:i32 sy:i32", 4, SiluMul},
    {"gelu", "x:f32* d:i32 sx:i32", 4, Gelu},
    {"add", "x:f32* y:f32* d:i32 sx:i32 sy:i32", 4, Add},
    {"scatter_add", "x:f32* rows:i32* y:f32* d:i32 sx:i32 sy:i32", 4, ScatterAdd},
    {"gather_8", "x:u8* rows:i32* y:u8* d:i32 sx:i32 sy:i32", 4, Gather<uint8_t>},
    {"gather_16", "x:bf16* rows:i32* y:bf16* d:i32 sx:i32 sy:i32", 4, Gather<uint16_t>},
    {"gather_32", "x:f32* rows:i32* y:f32* d:i32 sx:i32 sy:i32", 4, Gather<uint32_t>},
    {"convert_f32_f32", "x:f32* y:f32* d:i32 width:i32 sx:i32 sy:i32", 4, Convert<float, float>},
    {"convert_f32_bf16", "x:f32* y:bf16* d:i32 width:i32 sx:i32 sy:i32", 4, Convert<float, BF16>},
    {"convert_f32_f16", "x:f32* y:f16* d:i32 width:i32 sx:i32 sy:i32", 4, Convert<float, F16>},
    {"convert_f16_bf16", "x:f16* y:bf16* d:i32 width:i32 sx:i32 sy:i32", 4, Convert<F16, BF16>},
    {"convert_f32_q8_0", "x:f32* y:i8* d:i32 sx:i32 sy:i32", 4, ToQ8},
    {"convert_q8_0_bf16", "x:i8* y:bf16* d:i32 sx:i32 sy:i32", 4, FromQ8},
    {"embed_f32", "table:f32* ids:i32* y:f32* d:i32 sx:i32 sy:i32", 4, Embed<float>},
    {"embed_f16", "table:f16* ids:i32* y:f32* d:i32 sx:i32 sy:i32", 4, Embed<F16>},
    {"embed_bf16", "table:bf16* ids:i32* y:f32* d:i32 sx:i32 sy:i32", 4, Embed<BF16>},
};

}  // namespace

std::span<const FakeKernel> RowKernels() { return kRowKernels; }

}  // namespace coppice::gpu::fake
