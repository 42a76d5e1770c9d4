#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/check.h"

namespace coppice {

namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

// Llama 3.1: wavelengths longer than the original context are stretched by `factor`, short ones are kept, and
// those between are interpolated.
void ScaleLlama3(const RopeConfig& c, std::vector<double>& inverse) {
  const double context = static_cast<double>(c.original_context);
  for (double& f : inverse) {
    const double turns = context * f / kTwoPi;  // full turns over the original context
    const double smooth =
        std::clamp((turns - c.low_freq_factor) / (c.high_freq_factor - c.low_freq_factor), 0.0, 1.0);
    f = (1 - smooth) * f / c.factor + smooth * f;
  }
}

// YaRN (Peng et al. 2023, section 3.2): dimensions that turn more than beta_fast times over the original
// context keep their frequency, those that turn less than beta_slow times are interpolated.
void ScaleYarn(const RopeConfig& c, RopeFrequencies& r) {
  const auto dimension = [&](double turns) {
    return c.dims * std::log(static_cast<double>(c.original_context) / (turns * kTwoPi)) /
           (2 * std::log(c.base));
  };
  const double first = dimension(c.beta_fast);
  const double last = dimension(c.beta_slow);
  const double low = std::max(c.truncate ? std::floor(first) : first, 0.0);
  const double high = std::min(c.truncate ? std::ceil(last) : last, static_cast<double>(c.dims - 1));
  for (size_t i = 0; i < r.inverse.size(); ++i) {
    const double span = std::max(high - low, 0.001);  // as the authors' code: never a division by zero
    const double ramp = std::clamp((static_cast<double>(i) - low) / span, 0.0, 1.0);
    r.inverse[i] = ramp * r.inverse[i] / c.factor + (1 - ramp) * r.inverse[i];
  }
  r.magnitude =
      c.attention_factor > 0 ? c.attention_factor : (c.factor > 1 ? 0.1 * std::log(c.factor) + 1 : 1);
}

// LongRoPE (Ding et al. 2024), as transformers has it: a prompt beyond the original context has the long
// factors from its first position on. Its answer keeps them, and a shorter prompt's keeps the short ones.
void ScaleLongRope(const RopeConfig& c, int64_t tokens, RopeFrequencies& r) {
  const std::vector<float>& factors = tokens > c.original_context ? c.long_factors : c.short_factors;
  for (size_t i = 0; i < factors.size(); ++i) r.inverse[i] /= static_cast<double>(factors[i]);
  r.magnitude = c.attention_factor;
  if (r.magnitude == 0) {
    r.magnitude = c.factor <= 1
                      ? 1
                      : std::sqrt(1 + std::log(c.factor) / std::log(static_cast<double>(c.original_context)));
  }
}

}  // namespace

RopeFrequencies MakeRopeFrequencies(const RopeConfig& c, std::span<const float> factors, int64_t tokens) {
  RopeFrequencies r;
  const int half = c.dims / 2;
  COPPICE_CHECK(factors.empty() || static_cast<int>(factors.size()) == half);
  for (int i = 0; i < half; ++i) {
    const double factor = factors.empty() ? 1.0 : static_cast<double>(factors[static_cast<size_t>(i)]);
    r.inverse.push_back(std::pow(c.base, -2.0 * i / c.dims) / factor);
  }
  switch (c.scaling) {
    case RopeConfig::Scaling::kNone:
      break;
    case RopeConfig::Scaling::kLinear:
      for (double& f : r.inverse) f /= c.factor;
      break;
    case RopeConfig::Scaling::kProportional:  // Gemma 4: frequencies as if all of the head rotated
      for (int i = 0; i < half; ++i)
        r.inverse[static_cast<size_t>(i)] *= i < static_cast<int>(c.rotating * half) ? 1 / c.factor : 0;
      break;
    case RopeConfig::Scaling::kLlama3:
      ScaleLlama3(c, r.inverse);
      break;
    case RopeConfig::Scaling::kYarn:
      ScaleYarn(c, r);
      break;
    case RopeConfig::Scaling::kLongRope:
      ScaleLongRope(c, tokens, r);
      break;
  }
  return r;
}

void RopeTables::Reach(int64_t positions) {
  const auto half = static_cast<int64_t>(frequencies_.inverse.size());
  const int64_t before = cos_.rows();
  if (half == 0 || positions <= before) return;
  const int64_t reached = std::max(positions, before + before / 2);
  Tensor cos(DType::kF32, reached, half);
  Tensor sin(DType::kF32, reached, half);
  CopyRows(cos_.view(), cos.mutable_view().Rows(0, before));
  CopyRows(sin_.view(), sin.mutable_view().Rows(0, before));
  for (int64_t p = before; p < reached; ++p) {
    const std::span<float> cos_row = cos.mutable_view().Row<float>(p);
    const std::span<float> sin_row = sin.mutable_view().Row<float>(p);
    for (size_t i = 0; i < frequencies_.inverse.size(); ++i) {
      const double angle = static_cast<double>(p) * frequencies_.inverse[i];
      cos_row[i] = static_cast<float>(frequencies_.magnitude * std::cos(angle));
      sin_row[i] = static_cast<float>(frequencies_.magnitude * std::sin(angle));
    }
  }
  if (memory_ == nullptr) {
    cos_ = std::move(cos);
    sin_ = std::move(sin);
    return;
  }
  cos_ = Tensor(DType::kF32, reached, half, memory_);
  sin_ = Tensor(DType::kF32, reached, half, memory_);
  CopyRows(cos.view(), cos_.mutable_view());
  CopyRows(sin.view(), sin_.mutable_view());
}

namespace {

void DivideRotated(MutableTensorView rows, int head_dim, int64_t rotary, float magnitude) {
  for (int64_t i = 0; i < rows.rows; ++i) {
    const std::span<float> row = rows.Row<float>(i);
    for (int64_t c = 0; c < rows.cols; ++c) {
      if (c % head_dim < rotary) row[static_cast<size_t>(c)] /= magnitude;
    }
  }
}

}  // namespace

void RotateFurther(MutableTensorView rows, int head_dim, std::span<const int32_t> offsets,
                   const RopeTable& rope, Backend& be) {
  be.Rope(rows, head_dim, offsets, rope);
  const HostRows first(rope.cos.Rows(0, 1));
  const float magnitude = first.view().Row<float>(0)[0];  // cos 0 times YaRN's factor
  if (magnitude == 1) return;
  const int64_t rotary = 2 * rope.cos.cols;
  if (rows.memory != nullptr) {
    Tensor host(DType::kF32, rows.rows, rows.cols);
    CopyRows(rows, host.mutable_view());
    DivideRotated(host.mutable_view(), head_dim, rotary, magnitude);
    CopyRows(host.view(), rows);
  } else {
    DivideRotated(rows, head_dim, rotary, magnitude);
  }
}

}  // namespace coppice
