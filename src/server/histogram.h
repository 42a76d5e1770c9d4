// A histogram in Prometheus' form. It allocates nothing, so that counting cannot fail.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace coppice {

class Histogram {
 public:
  static constexpr size_t kMostBounds = 15;

  // `bounds` ascend and outlive the histogram; there are at most kMostBounds.
  explicit Histogram(std::span<const double> bounds);
  void Add(double value);
  void Add(const Histogram& other);  // of the same bounds
  int64_t count() const;
  double sum() const { return sum_; }
  // The lines of one metric, coppice_NAME, in the text format.
  std::string Text(std::string_view name, std::string_view help) const;

 private:
  std::span<const double> bounds_;
  std::array<int64_t, kMostBounds + 1> counts_ = {};  // behind those of the bounds: values above all of them
  double sum_ = 0;
};

// Seconds between two tokens of an answer: from a small model's on many cores to a step that waits for
// several prompts' tiles.
inline constexpr double kTokenGapBounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075,
                                             0.1,   0.15,   0.2,   0.3,  0.5,   1,    2.5};

}  // namespace coppice
