#include "kernels/reference/rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "formats/quants.h"
#include "kernels/op_checks.h"
#include "kernels/reference/dot.h"

namespace coppice::reference {

void Embed(const TensorView& table, std::span<const int32_t> ids, float scale, MutableTensorView y) {
  CheckEmbed(table, ids, y);
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::span<float> row = y.Row<float>(static_cast<int64_t>(i));
    DequantizeRow(table.dtype, table.RowBytes(ids[i]), row);
    for (float& v : row) v *= scale;
  }
}

void RmsNorm(const TensorView& x, const TensorView& weight, float eps, MutableTensorView y) {
  CheckRmsNorm(x, weight, y);
  if (x.empty()) return;
  const std::span<const float> w = weight.Row<float>(0);
  for (int64_t i = 0; i < x.rows; ++i) {
    for (size_t part = 0; part < static_cast<size_t>(x.cols); part += w.size()) {
      const std::span<const float> in = x.Row<float>(i).subspan(part, w.size());
      const std::span<float> out = y.Row<float>(i).subspan(part, w.size());
      const float mean_square = Dot(in.data(), in.data(), weight.cols) / static_cast<float>(weight.cols);
      const float inverse = 1.0f / std::sqrt(mean_square + eps);
      for (size_t c = 0; c < in.size(); ++c) out[c] = in[c] * inverse * w[c];
    }
  }
}

void LayerNorm(const TensorView& x, const TensorView& weight, const TensorView& bias, float eps,
               MutableTensorView y) {
  CheckNorm(x, weight, y);
  CheckNorm(x, bias, y);
  if (x.empty()) return;
  const std::span<const float> w = weight.Row<float>(0);
  const std::span<const float> b = bias.Row<float>(0);
  const std::vector<float> ones(static_cast<size_t>(x.cols), 1.0f);
  std::vector<float> centred(static_cast<size_t>(x.cols));
  for (int64_t i = 0; i < x.rows; ++i) {
    const std::span<const float> in = x.Row<float>(i);
    const std::span<float> out = y.Row<float>(i);
    const float mean = Dot(in.data(), ones.data(), x.cols) / static_cast<float>(x.cols);
    for (size_t c = 0; c < in.size(); ++c) centred[c] = in[c] - mean;
    // The mean of squared differences; mean(x^2) - mean^2 would cancel for a large mean.
    const float variance = Dot(centred.data(), centred.data(), x.cols) / static_cast<float>(x.cols);
    const float inverse = 1.0f / std::sqrt(variance + eps);
    for (size_t c = 0; c < in.size(); ++c) out[c] = centred[c] * inverse * w[c] + b[c];
  }
}

void Rope(MutableTensorView x, int head_dim, std::span<const int32_t> positions, const RopeTable& table) {
  CheckRope(x, head_dim, positions, table);
  const int64_t pairs = table.cos.cols;
  if (pairs == 0) return;
  const int64_t step = table.interleaved ? 2 : 1;       // from one pair to the next
  const int64_t apart = table.interleaved ? 1 : pairs;  // between the two elements of a pair
  for (int64_t i = 0; i < x.rows; ++i) {
    const std::span<const float> cos = table.cos.Row<float>(positions[static_cast<size_t>(i)]);
    const std::span<const float> sin = table.sin.Row<float>(positions[static_cast<size_t>(i)]);
    for (int64_t head = 0; head < x.cols; head += head_dim) {
      float* v = x.Row<float>(i).data() + head;
      for (int64_t pair = 0; pair < pairs; ++pair) {
        const float c = cos[static_cast<size_t>(pair)];
        const float s = sin[static_cast<size_t>(pair)];
        const float a = v[pair * step];
        const float b = v[pair * step + apart];
        v[pair * step] = a * c - b * s;
        v[pair * step + apart] = a * s + b * c;
      }
    }
  }
}

namespace {

float Silu(float x) { return x / (1.0f + std::exp(-x)); }

// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), with BLOOM's rounding of the constant.
float GeluOf(float x) { return 0.5f * x * (1.0f + std::tanh(0.79788456f * x * (1.0f + 0.044715f * x * x))); }

float SwiGluOai(float gate, float up) {
  const float h = std::min(gate, 7.0f);
  return h / (1.0f + std::exp(-1.702f * h)) * (std::clamp(up, -7.0f, 7.0f) + 1.0f);
}

float Activated(Activation activation, float gate, float up) {
  if (activation == Activation::kSwiGluOai) return SwiGluOai(gate, up);
  if (activation == Activation::kIdentity) return gate * up;
  if (activation == Activation::kRelu) return gate < 0 ? 0 * up : gate * up;
  if (activation == Activation::kSigmoid) return up / (1.0f + std::exp(-gate));
  return (activation == Activation::kSilu ? Silu(gate) : GeluOf(gate)) * up;
}

}  // namespace

void GateMul(MutableTensorView gate, const TensorView& up, Activation activation) {
  CheckSameShape(gate, up);
  for (int64_t i = 0; i < gate.rows; ++i) {
    const std::span<float> g = gate.Row<float>(i);
    const std::span<const float> u = up.Row<float>(i);
    for (size_t c = 0; c < g.size(); ++c) g[c] = Activated(activation, g[c], u[c]);
  }
}

void Gelu(MutableTensorView x) {
  CheckSameShape(x, x);
  for (int64_t i = 0; i < x.rows; ++i) {
    for (float& v : x.Row<float>(i)) v = GeluOf(v);
  }
}

void Add(const TensorView& x, MutableTensorView y) {
  CheckSameShape(x, y);
  for (int64_t i = 0; i < x.rows; ++i) {
    const std::span<const float> in = x.Row<float>(i);
    const std::span<float> out = y.Row<float>(i);
    for (size_t c = 0; c < in.size(); ++c) out[c] += in[c];
  }
}

void GatherRows(const TensorView& x, std::span<const int32_t> rows, MutableTensorView y) {
  CheckGatherRows(x, rows, y);
  const size_t bytes = static_cast<size_t>(BytesOf(x.dtype, x.cols));
  if (bytes == 0) return;
  // memmove, because in place a row may already be where it belongs.
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memmove(y.RowBytes(static_cast<int64_t>(i)), x.RowBytes(rows[i]), bytes);
  }
}

void AddScaled(std::span<const float> x, float scale, std::span<float> y) {
  for (size_t c = 0; c < x.size(); ++c) y[c] += scale * x[c];
}

void ScatterAddRows(const TensorView& x, std::span<const int32_t> rows, MutableTensorView y) {
  CheckScatterAddRows(x, rows, y);
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::span<const float> in = x.Row<float>(static_cast<int64_t>(i));
    const std::span<float> out = y.Row<float>(rows[i]);
    for (size_t c = 0; c < in.size(); ++c) out[c] += in[c];
  }
}

void Convert(const TensorView& x, MutableTensorView y) {
  CheckConvert(x, y);
  for (int64_t i = 0; i < x.rows; ++i) {
    const std::span<const float> in = x.Row<float>(i);
    if (y.dtype == DType::kF32) std::copy(in.begin(), in.end(), y.Row<float>(i).begin());
    if (y.dtype == DType::kF16) {
      std::transform(in.begin(), in.end(), y.Row<F16>(i).begin(), [](float v) { return ToF16(v); });
    }
    if (y.dtype == DType::kBF16) {
      std::transform(in.begin(), in.end(), y.Row<BF16>(i).begin(), [](float v) { return ToBF16(v); });
    }
    if (y.dtype == DType::kQ8_0) QuantizeRow(y.dtype, in, y.RowBytes(i));
  }
}

void MeanRows(const TensorView& x, int64_t block, MutableTensorView means) {
  std::vector<float> row(static_cast<size_t>(x.cols));
  for (int64_t u = 0; u < means.rows; ++u) {
    const std::span<float> mean = means.Row<float>(u);
    std::fill(mean.begin(), mean.end(), 0.0f);
    const int64_t end = std::min((u + 1) * block, x.rows);
    for (int64_t i = u * block; i < end; ++i) {
      DequantizeRow(x.dtype, x.RowBytes(i), row);
      for (size_t c = 0; c < row.size(); ++c) mean[c] += row[c];
    }
    for (float& m : mean) m /= static_cast<float>(end - u * block);
  }
}

}  // namespace coppice::reference
