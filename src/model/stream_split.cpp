// The rows of a prefill that several processes compute: who computes which, and what they send each other
// when rows leave the stream.
#include <algorithm>
#include <numeric>
#include <utility>

#include "model/stream.h"
#include "tensor/device_memory.h"

namespace coppice {

void Stream::Split(Deal deal, int process) {
  COPPICE_CHECK(prefill() && in_front_ == 0 && deal.rows() == rows());
  deal_ = std::move(deal);
  process_ = process;
  Show();
}

std::vector<Tile> Stream::Tiles(int64_t tile_rows) const {
  if (deal_.processes() == 1) return TilesOf(rows(), prefill() ? 0 : 1, tile_rows);
  std::vector<Tile> tiles;
  for (int round = 0; round < deal_.rounds(); ++round) {
    const RowRange piece = deal_.Piece(round, process_);
    if (piece.count > 0) tiles.push_back({piece.begin, piece.count, ProductKind::kPrefill});
  }
  return tiles;
}

TokenSet Stream::Own(const TokenSet& some) const {
  if (deal_.processes() == 1) return some;
  std::vector<int32_t> own;
  for (const Tile& tile : Tiles(rows())) {
    for (int64_t row = tile.begin; row < tile.begin + tile.count; ++row)
      own.push_back(static_cast<int32_t>(row));
  }
  return TokenSet::Of(std::move(own), rows()).Intersect(some);
}

void Stream::ShowAllHidden(const Pass& pass) {
  if (!pass.policy.ReadsHidden(seen_.layer)) return;
  pass.split->Share(deal_, hidden());
  seen_.hidden = hidden();
}

namespace {

// Where every row of the stream is computed, and where it goes when some of them leave the stream.
struct Moves {
  Moves(const Deal& now, const Deal& next, const TokenSet& kept, bool parks)
      : from(now.Owners()), to(from.size(), 0), stays(from.size(), 0), parks_(parks) {
    const std::vector<int> owners = next.Owners();
    for (size_t i = 0; i < owners.size(); ++i) {
      const auto row = static_cast<size_t>(kept.rows()[i]);
      to[row] = owners[i];
      stays[row] = 1;
    }
  }
  // A dropped row goes to process 0, which parks it, or nowhere.
  bool Travels(size_t row) const { return from[row] != to[row] && (stays[row] != 0 || parks_); }

  std::vector<int> from;
  std::vector<int> to;
  std::vector<uint8_t> stays;

 private:
  bool parks_;
};

// Rows that travel, in order of the process at the other end.
class Parcel {
 public:
  Parcel(const std::vector<int64_t>& counts, int64_t cols) : counts_(counts), next_(counts.size(), 0) {
    std::partial_sum(counts.begin(), counts.end() - 1, next_.begin() + 1);
    rows_.Resize(DType::kF32, std::accumulate(counts.begin(), counts.end(), int64_t{0}), cols);
  }
  // The next row to or from a process.
  MutableTensorView Next(int process) {
    return rows_.mutable_view().Rows(next_[static_cast<size_t>(process)]++, 1);
  }
  const std::vector<int64_t>& counts() const { return counts_; }
  MutableTensorView rows() { return rows_.mutable_view(); }

 private:
  std::vector<int64_t> counts_;  // [processes]
  std::vector<int64_t> next_;    // [processes]
  Tensor rows_;                  // [sum of counts, d]
};

Parcel Send(const Moves& moves, int process, const TensorView& hidden, Comm& comm) {
  std::vector<int64_t> leaving(static_cast<size_t>(comm.size()));
  std::vector<int64_t> arriving(static_cast<size_t>(comm.size()));
  for (size_t row = 0; row < moves.from.size(); ++row) {
    if (!moves.Travels(row)) continue;
    if (moves.from[row] == process) ++leaving[static_cast<size_t>(moves.to[row])];
    if (moves.to[row] == process) ++arriving[static_cast<size_t>(moves.from[row])];
  }
  Parcel out(leaving, hidden.cols);
  for (size_t row = 0; row < moves.from.size(); ++row) {
    if (moves.from[row] != process || !moves.Travels(row)) continue;
    CopyRows(hidden.Rows(static_cast<int64_t>(row), 1), out.Next(moves.to[row]));
  }
  Parcel in(arriving, hidden.cols);
  comm.Exchange(out.rows(), out.counts(), in.rows(), in.counts());
  return in;
}

}  // namespace

// The kept rows are dealt anew. Each goes to its new process, and a row to be parked to process 0, which
// alone will decode. One exchange carries both.
void Stream::DealAgain(const TokenSet& kept, Place place, const Pass& pass) {
  Deal next(kept.size(), deal_.processes(), pass.workspace.tile_rows);
  const Moves moves(deal_, next, kept, pass.policy.Facts().parks && place.depth < seen_.layers);
  const bool parks = Parks(place, pass);
  Parcel arrived = Send(moves, process_, hidden(), pass.split->comm());

  // In order of rows: a row moves towards the front, to a place whose old row has moved or was sent already.
  size_t end = 0;
  for (size_t row = 0; row < moves.from.size(); ++row) {
    const bool arrives = moves.to[row] == process_ && moves.Travels(row);
    const TensorView now =
        arrives ? arrived.Next(moves.from[row]) : hidden().Rows(static_cast<int64_t>(row), 1);
    if (moves.stays[row] == 0) {
      ParkRow(positions_[row], now, place, parks, pass.backend);
      continue;
    }
    if (moves.to[row] == process_) CopyRows(now, hidden().Rows(static_cast<int64_t>(end), 1));
    positions_[end++] = positions_[row];
  }
  positions_.resize(end);
  deal_ = std::move(next);
  seen_.KeepRows(kept);
  Show();
}

}  // namespace coppice
