// FlashPrefill: prefill attention on the blocks whose mean keys score near the best one (head of
// flashprefill.cpp).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "policies/method_info.h"
#include "policies/pattern.h"
#include "policies/policy.h"

namespace coppice {

struct FlashPrefillConfig {
  double alpha = 0.12;  // a block counts from this share of the best block's score on, [0, 1]; 0 is dense
  int block = 128;
  int sink = 2;            // first key blocks that are always read
  int window = 4;          // key blocks up to the own one that are always read
  int last = 2;            // last query blocks that read everything
  int64_t minimum = 4096;  // shorter prompts run densely
};

// The mean keys of one kv head, ready for products, and the mean positions of their blocks.
class ProbeKeys {
 public:
  // `head` has one kv head.
  ProbeKeys(const AttentionInput& head, int block, Backend& be);

  int64_t count() const { return packed_.outputs; }
  const PackedMatrix& packed() const { return packed_; }
  std::span<const float> positions() const { return positions_; }

 private:
  PackedMatrix packed_;
  std::vector<float> positions_;
};

// (2) for one head, as multiples of each query block's largest term: [query blocks below `end`][key blocks],
// 0 where no query sees the whole key block.
std::vector<double> ProbeScores(const AttentionInput& head, const BlockGrid& grid, const ProbeKeys& keys,
                                int64_t end, Backend& be);

// Marks the scores of at least `alpha` of the best. All where the best is not above 0 or one is NaN.
std::vector<uint8_t> NearTheBest(std::span<const double> scores, double alpha);

class FlashPrefillPolicy final : public TokenPolicy {
 public:
  explicit FlashPrefillPolicy(const FlashPrefillConfig& config) : config_(config) {}

  bool ChoosesPattern(Phase phase, int layer) const override;
  SparsePattern Pattern(const AttentionScene& scene, Backend& be) override;

 private:
  FlashPrefillConfig config_;
};

MethodInfo FlashPrefillMethod();

}  // namespace coppice
