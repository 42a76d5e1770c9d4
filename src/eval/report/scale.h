// Maps numbers to places along an axis, with readable ticks.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace coppice {

struct Scale {
  double low = 0;
  double high = 1;
  bool logarithmic = false;
  std::vector<double> ticks = {};  // ascending, within [low, high]

  // 0 at `low`, 1 at `high`.
  double At(double value) const;
};

// Over [low, high], widened to whole ticks of 1, 2 or 5 times a power of ten; `most_ticks` is at least 3,
// because zero may have to be one. Returns a valid scale even if low equals high or either is not finite.
Scale NiceScale(double low, double high, int most_ticks = 6);
// Logarithmic, with ticks at `values` (positive), and a margin at both ends.
Scale ScaleOfValues(std::vector<double> values);
// `count` slots, the ticks in their middles.
Scale Slots(size_t count);

// How a number is written on axes and in tables.
using NumberText = std::function<std::string(double value)>;
std::string PlainText(double value);    // "0.25", "1200"
std::string PercentText(double share);  // 0.25 is "25 %"
std::string RatioText(double value);    // "1.5x"
std::string TimeText(double ms);        // "350 ms", "2.5 s"
std::string SizeText(double bytes);     // "512 KiB", "1.5 GiB"
std::string CountText(double value);    // 4096 is "4k", 6000 is "6,000"

// The smallest and largest of what is finite, or {0, 1}.
struct Range {
  double low = 0;
  double high = 1;
};
Range RangeOf(const std::vector<double>& values);

}  // namespace coppice
