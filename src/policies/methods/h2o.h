// H2O: the cache keeps heavy hitters and recent tokens (file head of h2o.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "policies/method_info.h"
#include "policies/policy.h"
#include "policies/retain.h"

namespace coppice {

struct H2oConfig {
  TokenBudget heavy = {0.2};   // rows kept for their mass; 0 leaves a local window
  TokenBudget recent = {0.2};  // last rows, kept whatever their mass
  bool per_query = false;      // divide a row's mass by the number of queries that could see it
};

class H2oPolicy final : public TokenPolicy {
 public:
  explicit H2oPolicy(const H2oConfig& config) : config_(config) {}

  Needs NeedsAt(Phase phase, int layer) const override;
  bool RetainsAt(Phase phase, int layer) const override;
  std::optional<Retained> Retain(const Observation& seen, const CacheScene& cache, Backend& be) override;

  // The sums (1) of the rows in the cache of `layer`, [kv_heads][rows].
  const std::vector<std::vector<float>>& MassOf(int layer) const {
    return sums_[static_cast<size_t>(layer)].mass;
  }

 private:
  // For the rows in a layer's cache.
  struct Sums {
    std::vector<std::vector<float>> mass;     // [kv_heads][rows]
    std::vector<std::vector<float>> queries;  // [kv_heads][rows] number of queries that could see the row
  };
  static Needs::Mass Mass(Phase phase);
  void Accumulate(const TensorView& mass, Sums& sums) const;
  static std::vector<std::vector<float>> MassPerQuery(const Sums& sums);

  H2oConfig config_;
  int64_t tokens_ = 0;      // N: prompt tokens that entered the model
  std::vector<Sums> sums_;  // [layers]
};

MethodInfo H2oMethod();

}  // namespace coppice
