// The metrics of several models as one text of Prometheus' format 0.0.4.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

inline constexpr const char* kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

class MergedMetrics {
 public:
  // `text` are the metrics of one model. Each sample gets the label model_name, unless it has one.
  void Add(std::string_view model, std::string_view text);
  // What is not of one model: in place of the samples of a metric without labels.
  void Replace(std::string_view name, int64_t value);
  // The samples of one metric stand together, under its first HELP and TYPE.
  std::string Text() const;

 private:
  struct Family {
    std::string name;
    std::string about;  // its lines HELP and TYPE
    std::string samples;
  };
  Family& FamilyOf(std::string_view name);
  std::vector<Family> families_;  // in the order in which they came
};

}  // namespace coppice
