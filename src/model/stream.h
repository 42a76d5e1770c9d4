// The residual stream: the hidden states that are being computed, and what a policy may see of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/deal.h"
#include "kernels/backend.h"
#include "model/pass.h"
#include "policies/policy.h"
#include "tensor/tensor.h"

namespace coppice {

// In prefill its rows are the prompt's tokens; dropped tokens are gone, or parked in the Aux cache. In decode
// its last row is the current token, and the rows before it are parked tokens that returned in this step, in
// order of position.
class Stream {
 public:
  // hidden: [positions.size(), d] fp32. If the sequence reuses a prefix, these are the rows after it.
  // `last_row_only`: the caller wants the last layer's output for the last row alone.
  Stream(Phase phase, SequenceState& sequence, Tensor hidden, std::vector<int32_t> positions,
         bool last_row_only);
  // Prefill by several processes, without a prefix: `process` computes its rows of the deal, and only these
  // rows of `hidden` need to be filled.
  void Split(Deal deal, int process);

  Phase phase() const { return seen_.phase; }
  bool prefill() const { return seen_.phase == Phase::kPrefill; }
  bool last_row_only() const { return last_row_only_; }
  int64_t rows() const { return static_cast<int64_t>(positions_.size()); }
  const std::vector<int32_t>& positions() const { return positions_; }  // [rows] ascending
  // The first row whose position is at least this; rows() if none is.
  int64_t RowOf(int64_t position) const;
  std::vector<int32_t> Tokens() const;                                           // [rows] their ids
  MutableTensorView hidden() { return hidden_.mutable_view().Rows(0, rows()); }  // [rows, d] fp32
  SequenceState& sequence() { return sequence_; }
  // Who computes which rows: one process all of them, or several. Then hidden() holds this process's rows,
  // and rows of others are undefined.
  const Deal& deal() const { return deal_; }
  // The rows that this process computes: of one process, tiles of at most `tile_rows` rows; of several, the
  // pieces that the deal gives it. Own: those of `rows` among them.
  std::vector<Tile> Tiles(int64_t tile_rows) const;
  TokenSet Own(const TokenSet& rows) const;
  Observation& seen() { return seen_; }

  // Begins a layer. The scores of layer l - 1 stay visible until layer l observes its own.
  void Enter(int layer);
  // Prefill: at the reused prefix's point its hidden states join the stream. The sequence's capture copies
  // the states that it keeps. Enter calls Reach for the beginning of a layer.
  void Reach(LayerPoint point);
  // Number of prefix positions reused from the cache. They already have keys in this layer; their hidden
  // states join the stream later. Until then policies see all positions, and must keep these.
  int64_t in_front() const { return in_front_; }
  // Turns a set of the rows that a policy sees into one of the stream's. All rows in front are in `seen`.
  TokenSet BehindFront(const TokenSet& seen) const;

  // Asks the policy at one of the two points of a layer, and applies the answer. Prefill: drops rows, and
  // parks them if the policy may bring them back. Decode: sets what is attended from here on; parked tokens
  // among these return to the stream, and rows that are not among them are parked again.
  void Choose(DecodePoint point, const Pass& pass);
  // Keeps the last row alone, since the last layer's other outputs are not needed. This does not count as
  // pruning.
  void KeepLastOnly(Backend& be);

  // What this layer attends in decode: every token that has keys here until the policy has chosen, then the
  // positions attended(), ascending, with the current token last.
  bool attends_all() const { return attends_all_; }
  std::span<const int32_t> attended() const { return attended_; }
  // Decode: waits until the attended keys of this layer are back from the cold tier.
  void LoadColdKeys();

  // Decode: records that the rows now have keys in `layers` layers.
  void SetDepth(int layers);
  // The positions at which the rows attend. kCausal: their own. kAppend: all at the current token's position,
  // so returned tokens see every token that the current one sees, also within a sliding window.
  std::vector<int32_t> QueryPositions(ReviveMask mask) const;

 private:
  // The point at which tokens are parked and return: the number of layers that hold their keys, and whether
  // they still need the FFN of the last of these layers.
  struct Place {
    int depth;
    bool ffn_owed;
  };
  void Keep(const TokenSet& kept, Place place, const Pass& pass);
  // stream_split.cpp
  void ShowAllHidden(const Pass& pass);
  void DealAgain(const TokenSet& kept, Place place, const Pass& pass);
  // `kept`: a set of the stream's rows; `kept_seen`: the same tokens as a set of seen_'s rows.
  void Compact(const TokenSet& kept, const TokenSet& kept_seen, Backend& be);
  void Join();
  void Show();
  // revival.cpp
  bool IsParkedAt(int32_t position, Place place) const;
  bool Parks(Place place, const Pass& pass) const;
  void Park(std::span<const int32_t> dropped, Place place, const Pass& pass);  // rows of the stream
  // hidden: [1, d] fp32. `parks`: Parks(place, pass).
  void ParkRow(int32_t position, const TensorView& hidden, Place place, bool parks, Backend& be);
  void ChooseAttended(Place place, const Pass& pass);
  void TakeBack(const std::vector<int32_t>& returning, Backend& be);
  void BeginSwap(const Pass& pass);

  SequenceState& sequence_;
  bool last_row_only_;
  Tensor hidden_;
  std::vector<int32_t> positions_;
  int process_ = 0;  // this one, of the deal's
  Deal deal_;
  int64_t in_front_ = 0;
  std::vector<int32_t> all_positions_;  // of the prefix and of the rows, while in_front_ > 0
  bool attends_all_ = true;
  std::vector<int32_t> attended_;
  std::vector<int32_t> attended_blocks_;
  Observation seen_;
};

}  // namespace coppice
