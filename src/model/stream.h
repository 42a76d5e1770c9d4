// The residual stream: the hidden states of the tokens that are computed, and what policies may see of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "model/sequence.h"
#include "policies/policy.h"
#include "tensor/tensor.h"

namespace coppice {

// In prefill its rows are the prompt's tokens, and whoever leaves is gone or parked. In decode its last row is
// the current token; before it stand the parked tokens that came back in this step, in order of position.
class Stream {
 public:
  // hidden: [positions.size(), d] fp32. Where the sequence takes over a prefix, the rows behind it.
  Stream(Phase phase, int layers, SequenceState& sequence, Tensor hidden, std::vector<int32_t> positions);

  Phase phase() const { return seen_.phase; }
  bool prefill() const { return seen_.phase == Phase::kPrefill; }
  int64_t rows() const { return static_cast<int64_t>(positions_.size()); }
  const std::vector<int32_t>& positions() const { return positions_; }
  MutableTensorView hidden() { return hidden_.mutable_view().Rows(0, rows()); }  // [rows, d]
  SequenceState& sequence() { return sequence_; }

  // Scores of layer l - 1 stay visible until layer l observes its own.
  void Enter(int layer);
  // Prefill: rows of the prefix that wait for this point join the others, and the sequence's capture takes its share.
  // Enter does it for the beginning of a layer.
  void Reach(LayerPoint point);
  // So many positions in front of the rows have keys here, and hidden states from a later point on alone. Until then
  // policies see all positions, and must keep them all.
  int64_t in_front() const { return in_front_; }
  Observation& seen() { return seen_; }

  // Asks the policy at one of the two points of the layer entered, and does as it says. Prefill: which rows
  // stay; the others are parked where the policy parks. Decode: what is attended from here on; parked tokens
  // among it come back, and running ones that are not among it are parked again.
  void Choose(DecodePoint point, TokenPolicy& policy, Backend& be);
  // Only the last row goes on: the last layer needs the outputs of no other. Nothing is pruned by it.
  void KeepLastOnly(Backend& be);

  // Decode: what this layer attends. Everything that has keys here, until the policy chose; then `attended`,
  // ascending, the current token last; and the blocks of the cold tier that it lies in.
  bool attends_all() const { return attends_all_; }
  std::span<const int32_t> attended() const { return attended_; }
  std::span<const int32_t> attended_blocks() const { return attended_blocks_; }

  // The rows have keys in `layers` layers now.
  void ReachDepth(int layers);
  // Positions by which rows attend: their own, or, where tokens that came back see every attended token, later
  // ones too, positions behind all of them.
  std::vector<int32_t> MaskPositions(ReviveMask mask) const;

 private:
  // Where tokens are parked and taken back: how many layers hold their keys, and whether the FFN of the last
  // of these is owed.
  struct Place {
    int depth;
    bool ffn_owed;
  };
  void Keep(const TokenSet& kept, Place place, bool parks, Backend& be);
  void Attend(Place place, TokenPolicy& policy, Backend& be);
  void TakeBack(const std::vector<int32_t>& positions);
  void BeginSwap(TokenPolicy& policy, Backend& be);
  // `kept` of the rows, `kept_seen` of what the policy sees.
  void Compact(const TokenSet& kept, const TokenSet& kept_seen, Backend& be);
  void Join();
  void Show();

  SequenceState& sequence_;
  Tensor hidden_;
  std::vector<int32_t> positions_;
  int64_t in_front_ = 0;
  std::vector<int32_t> all_positions_;  // those in front and those of the rows, while there are any in front
  bool attends_all_ = true;
  std::vector<int32_t> attended_;
  std::vector<int32_t> attended_blocks_;
  Observation seen_;
};

}  // namespace coppice
