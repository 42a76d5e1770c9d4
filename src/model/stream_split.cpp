// The rows of a prefill that several processes compute: who computes which, and what they send each other when
// rows leave the stream.
#include <algorithm>
#include <cstring>
#include <utility>

#include "model/stream.h"

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
    for (int64_t row = tile.begin; row < tile.begin + tile.count; ++row) own.push_back(static_cast<int32_t>(row));
  }
  return TokenSet::Of(std::move(own), rows()).Intersect(some);
}

void Stream::ShowAllHidden(const Pass& pass) {
  const std::vector<int> layers = pass.policy.Facts().hidden_layers;
  Show();
  if (std::ranges::find(layers, seen_.layer) == layers.end()) return;
  pass.split->Share(deal_, hidden());
  seen_.hidden = hidden();
}

namespace {

// Rows that change hands, packed in order of the process at the other end.
struct Parcel {
  std::vector<int64_t> counts;  // [processes]
  Tensor rows;                  // [sum of counts, d]
};

}  // namespace

// The kept rows are dealt anew. Each goes to its new process, and a row to be parked to process 0, which alone
// will decode. One exchange carries both.
void Stream::DealAgain(const TokenSet& kept, Place place, const Pass& pass) {
  const int processes = deal_.processes();
  const Deal next(kept.size(), processes, pass.workspace.tile_rows);
  const std::vector<int> from = deal_.Owners();
  std::vector<int> to(from.size(), 0);
  const std::vector<int> next_owners = next.Owners();
  std::vector<bool> stays(from.size(), false);
  for (size_t i = 0; i < next_owners.size(); ++i) {
    to[static_cast<size_t>(kept.rows()[i])] = next_owners[i];
    stays[static_cast<size_t>(kept.rows()[i])] = true;
  }
  const bool parks = pass.policy.Facts().parks && place.depth < seen_.layers;
  const auto travels = [&](size_t row) { return from[row] != to[row] && (stays[row] || parks); };

  const auto row_bytes = static_cast<size_t>(BytesOf(DType::kF32, hidden_.cols()));
  const auto processes_size = static_cast<size_t>(processes);
  Parcel out{std::vector<int64_t>(processes_size), {}};
  Parcel in{std::vector<int64_t>(processes_size), {}};
  for (size_t row = 0; row < from.size(); ++row) {
    if (!travels(row)) continue;
    if (from[row] == process_) ++out.counts[static_cast<size_t>(to[row])];
    if (to[row] == process_) ++in.counts[static_cast<size_t>(from[row])];
  }
  const auto begins = [](const Parcel& parcel) {
    std::vector<int64_t> list = {0};
    for (const int64_t count : parcel.counts) list.push_back(list.back() + count);
    return list;
  };
  std::vector<int64_t> out_next = begins(out);
  std::vector<int64_t> in_next = begins(in);
  out.rows.Resize(DType::kF32, out_next.back(), hidden_.cols());
  in.rows.Resize(DType::kF32, in_next.back(), hidden_.cols());
  for (size_t row = 0; row < from.size(); ++row) {
    if (from[row] != process_ || !travels(row)) continue;
    std::memcpy(out.rows.mutable_view().RowBytes(out_next[static_cast<size_t>(to[row])]++),
                hidden_.view().RowBytes(static_cast<int64_t>(row)), row_bytes);
  }
  pass.split->comm().Exchange(out.rows.view(), out.counts, in.rows.mutable_view(), in.counts);

  // In order of rows: a row moves towards the front, to a place whose old row has moved or was sent already.
  int64_t place_of = 0;
  for (size_t row = 0; row < from.size(); ++row) {
    const bool arrives = to[row] == process_ && travels(row);
    const TensorView now = arrives ? in.rows.view().Rows(in_next[static_cast<size_t>(from[row])]++, 1)
                                   : TensorView(hidden()).Rows(static_cast<int64_t>(row), 1);
    if (!stays[row]) {
      Park(positions_[row], now, place, pass);
      continue;
    }
    if (to[row] == process_) std::memmove(hidden_.mutable_view().RowBytes(place_of), now.data, row_bytes);
    ++place_of;
  }
  for (size_t i = 0; i < next_owners.size(); ++i) positions_[i] = positions_[static_cast<size_t>(kept.rows()[i])];
  positions_.resize(next_owners.size());
  deal_ = next;
  seen_.KeepRows(kept, pass.backend);
  Show();
}

}  // namespace coppice
