#include "server/histogram.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace coppice {

Histogram::Histogram(std::span<const double> bounds) : bounds_(bounds) {
  COPPICE_CHECK(bounds.size() <= kMostBounds);
}

void Histogram::Add(double value) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  ++counts_[static_cast<size_t>(bucket)];
  sum_ += value;
}

void Histogram::Add(const Histogram& other) {
  COPPICE_CHECK(bounds_.data() == other.bounds_.data() && bounds_.size() == other.bounds_.size());
  for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  sum_ += other.sum_;
}

int64_t Histogram::count() const { return std::accumulate(counts_.begin(), counts_.end(), int64_t{0}); }

std::string Histogram::Text(std::string_view name, std::string_view help) const {
  std::string out = fmt::format("# HELP coppice_{0} {1}\n# TYPE coppice_{0} histogram\n", name, help);
  int64_t total = 0;
  for (size_t i = 0; i < bounds_.size(); ++i) {
    total += counts_[i];
    out += fmt::format("coppice_{}_bucket{{le=\"{}\"}} {}\n", name, bounds_[i], total);
  }
  return out +
         fmt::format("coppice_{0}_bucket{{le=\"+Inf\"}} {1}\ncoppice_{0}_sum {2}\ncoppice_{0}_count {1}\n",
                     name, count(), sum_);
}

}  // namespace coppice
