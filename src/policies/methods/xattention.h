// XAttention: prefill attention on the blocks whose antidiagonals carry the mass (head of xattention.cpp).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "policies/method_info.h"
#include "policies/pattern.h"
#include "policies/policy.h"

namespace coppice {

struct XAttentionConfig {
  double threshold = 0.9;  // share of each query block's estimated mass to cover, (0, 1]; 1 is dense
  int stride = 16;         // S: divides the block
  int block = 128;
  int64_t minimum = 4096;  // shorter prompts run densely
};

// The keys of one kv head, each row holding S keys side by side: [keys / S, S * head_dim]. A last row that
// would not be full is left out: only the dense rows see its keys.
class StridedKeys {
 public:
  StridedKeys(const TensorView& keys, int stride, Backend& be);

  int stride() const { return stride_; }
  int64_t count() const { return count_; }
  // scores = strided queries [m, S * head_dim] times the first `count` strided keys and the rest of the last
  // pack.
  void Multiply(const TensorView& queries, int64_t count, Tensor& scores, Backend& be) const;

 private:
  int stride_;
  int64_t count_;
  std::vector<PackedMatrix> packs_;  // of kTile strided keys each, so that a product can end at the diagonal
};

// (1) and (2) for one head: the mass of each block, [query blocks up to the dense ones][key blocks].
std::vector<double> AntidiagonalMass(const AttentionInput& head, const BlockGrid& grid,
                                     const StridedKeys& keys, Backend& be);

// (3): marks the smallest set of blocks that holds the first one and those from `diagonal` on and whose mass
// reaches `threshold` of the whole. Equal blocks: the earlier one. All where the mass is not above 0.
std::vector<uint8_t> ChooseBlocks(std::span<const double> mass, int64_t diagonal, double threshold);

class XAttentionPolicy final : public TokenPolicy {
 public:
  explicit XAttentionPolicy(const XAttentionConfig& config) : config_(config) {}

  bool ChoosesPattern(Phase phase, int layer) const override;
  SparsePattern Pattern(const AttentionScene& scene, Backend& be) override;

 private:
  XAttentionConfig config_;
};

MethodInfo XAttentionMethod();

}  // namespace coppice
