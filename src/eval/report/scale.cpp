#include "eval/report/scale.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace coppice {

namespace {

// The smallest of 1, 2, 5 times a power of ten that is not below `rough`.
double NiceStep(double rough) {
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

// At most `digits` of them behind the point, and none that are zeros at the end.
std::string Trimmed(double value, int digits) {
  std::string text = fmt::format("{:.{}f}", value, digits);
  if (text.find('.') != std::string::npos) {
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
  }
  return text == "-0" ? "0" : text;
}

int DigitsFor(double value) {
  const double size = std::abs(value);
  return size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : size >= 0.01 || size == 0 ? 3 : 5;
}

}  // namespace

double Scale::At(double value) const {
  if (logarithmic) return std::log(value / low) / std::log(high / low);
  return (value - low) / (high - low);
}

Scale NiceScale(double low, double high, int most_ticks) {
  COPPICE_CHECK(most_ticks >= 3);
  if (!std::isfinite(low) || !std::isfinite(high)) low = high = 0;
  if (low > high) std::swap(low, high);
  // A single value is in the middle of the axis, or above zero.
  if (high - low <= 1e-12 * std::max(std::abs(low), std::abs(high))) {
    const double around = high == 0 ? 1 : std::abs(high) / 2;
    low = low == 0 ? 0 : low - around;
    high += around;
  }
  double step = NiceStep((high - low) / (most_ticks - 1));
  const auto first = [&] { return std::floor(low / step + 1e-9); };
  const auto last = [&] { return std::ceil(high / step - 1e-9); };
  while (last() - first() + 1 > most_ticks) step = NiceStep(step * 1.5);
  Scale scale{.low = first() * step, .high = last() * step};
  for (double i = first(); i <= last(); ++i) scale.ticks.push_back(i * step);
  return scale;
}

Scale ScaleOfValues(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  COPPICE_CHECK(!values.empty() && values.front() > 0);
  return {.low = values.front() / 1.15,
          .high = values.back() * 1.15,
          .logarithmic = true,
          .ticks = std::move(values)};
}

Scale Slots(size_t count) {
  Scale scale{.low = -0.5, .high = static_cast<double>(std::max<size_t>(count, 1)) - 0.5};
  for (size_t i = 0; i < count; ++i) scale.ticks.push_back(static_cast<double>(i));
  return scale;
}

std::string PlainText(double value) { return Trimmed(value, DigitsFor(value)); }

std::string PercentText(double share) {
  const double percent = 100 * share;
  return Trimmed(percent, std::abs(percent) < 10 ? 1 : 0) + " %";
}

std::string RatioText(double value) { return Trimmed(value, value < 10 ? 2 : 1) + "x"; }

std::string TimeText(double ms) {
  return ms >= 1000 ? Trimmed(ms / 1000, ms >= 10000 ? 1 : 2) + " s" : Trimmed(ms, ms >= 10 ? 0 : 1) + " ms";
}

std::string SizeText(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  return Trimmed(bytes, bytes >= 100 || unit == 0 ? 0 : bytes >= 10 ? 1 : 2) + " " + units[unit];
}

std::string CountText(double value) {
  if (value >= 1024 && std::fmod(value, 1024) == 0) return Trimmed(value / 1024, 0) + "k";
  std::string text = Trimmed(value, DigitsFor(value));
  if (text.find('.') == std::string::npos) {
    for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > (value < 0 ? 1 : 0); at -= 3)
      text.insert(static_cast<size_t>(at), ",");
  }
  return text;
}

Range RangeOf(const std::vector<double>& values) {
  Range range{INFINITY, -INFINITY};
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    range.low = std::min(range.low, value);
    range.high = std::max(range.high, value);
  }
  return range.low > range.high ? Range{} : range;
}

}  // namespace coppice
