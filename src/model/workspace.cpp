#include "model/workspace.h"

#include <algorithm>
#include <functional>
#include <new>
#include <utility>

#include "base/check.h"

namespace coppice {

namespace {

// Weights that are not kept are packed on the fly for up to this many rows (PackedMatrix::once): otherwise
// every layer's packed weights would be written and read once for few rows.
constexpr int64_t kFewRows = 64;

}  // namespace

std::vector<Tile> TilesOf(int64_t rows, int64_t decode_rows, int64_t tile_rows) {
  std::vector<Tile> tiles;
  const auto add = [&](int64_t begin, int64_t end, ProductKind kind) {
    for (; begin < end; begin += tile_rows) tiles.push_back({begin, std::min(tile_rows, end - begin), kind});
  };
  add(0, rows - decode_rows, ProductKind::kPrefill);
  add(rows - decode_rows, rows, ProductKind::kDecode);
  return tiles;
}

void KeptWeights::SetRoom(int64_t bytes) {
  room_ = bytes;
  for (auto it = entries_.rbegin(); it != entries_.rend() && bytes_ > room_; ++it) {
    Entry& entry = it->second;
    if (!entry.kept) continue;
    bytes_ -= entry.bytes;
    entry.kept = false;
    entry.packed = {};
  }
  if (room_ == 0) entries_.clear();
}

const PackedMatrix* KeptWeights::Find(const PartsKey& parts) const {
  const auto found = entries_.find(parts);
  return found == entries_.end() || !found->second.kept ? nullptr : &found->second.packed;
}

bool KeptWeights::MayFit(const PartsKey& parts) const {
  const auto found = entries_.find(parts);
  return bytes_ + (found == entries_.end() ? 1 : found->second.bytes) <= room_;
}

const PackedMatrix* KeptWeights::Keep(const PartsKey& parts, PackedMatrix& packed) {
  Entry& entry = entries_[parts];
  COPPICE_CHECK(!entry.kept);
  entry.bytes = packed.storage.bytes() + packed.scales.bytes();
  if (bytes_ + entry.bytes > room_) return &packed;
  bytes_ += entry.bytes;
  entry.kept = true;
  entry.packed = std::exchange(packed, {});
  return &entry.packed;
}

void Projection::Prepare(std::vector<const Linear*> parts, std::optional<Activation> gate,
                         const std::vector<Tile>& tiles, WeightStores& kept, Backend& be) {
  parts_ = std::move(parts);
  gate_ = gate;
  const auto packs = [](const Tile& t) { return t.kind == ProductKind::kPrefill; };
  if (std::none_of(tiles.begin(), tiles.end(), packs)) return;
  Pack(tiles, kept, be);
  const auto has_bias = [](const Linear* part) { return !part->bias.empty(); };
  bias_ = {};
  if (parts_.size() == 1 || std::none_of(parts_.begin(), parts_.end(), has_bias)) return;
  int64_t outputs = 0;
  for (const Linear* part : parts_) outputs += part->weight.rows;
  bias_ = Tensor::Zeros(DType::kF32, 1, outputs, be.memory());
  int64_t column = 0;
  for (const Linear* part : parts_) {
    if (has_bias(part)) CopyRows(part->bias, bias_.mutable_view().Cols(column, part->weight.rows));
    column += part->weight.rows;
  }
}

void Projection::Pack(const std::vector<Tile>& tiles, WeightStores& kept, Backend& be) {
  const PartsKey key{parts_[0]->weight.data, parts_.size() > 1 ? parts_[1]->weight.data : nullptr};
  const bool decode = tiles.back().kind == ProductKind::kDecode;  // the current token's
  KeptWeights* keeper = nullptr;
  const std::array<KeptWeights*, 2> stores = {kept.lasting, decode ? &kept.steps : nullptr};
  for (KeptWeights* const store : stores) {
    if (store == nullptr) continue;
    packed_ = store->Find(key);
    if (packed_ != nullptr) return;
    if (keeper == nullptr && store->MayFit(key)) keeper = store;
  }
  if (keeper != nullptr) {
    try {
      own_ = {};  // so that no larger memory than is needed is kept
      PackOwn(be);
      packed_ = keeper->Keep(key, own_);
      return;
    } catch (const std::bad_alloc&) {
      keeper->Close();  // prompts need the memory that is left
      own_ = {};
    }
  }
  own_.once = tiles.front().count <= kFewRows && tiles.size() == (decode ? 2 : 1);
  PackOwn(be);
  packed_ = &own_;
}

void Projection::PackOwn(Backend& be) {
  std::vector<TensorView> weights;
  for (const Linear* part : parts_) weights.push_back(part->weight);
  if (gate_) {
    be.PackGated(weights[0], weights[1], *gate_, own_);
  } else {
    be.PackParts(weights, own_);
  }
}

void Projection::operator()(const TensorView& x, ProductKind kind, ProductEnd end, MutableTensorView y,
                            Backend& be) {
  if (kind == ProductKind::kDecode) return Decode(x, end, y, be);
  be.ProductInto(x, *packed_, parts_.size() == 1 ? parts_[0]->bias : bias_.view(), end, y);
}

void Projection::Decode(const TensorView& x, ProductEnd end, MutableTensorView y, Backend& be) {
  const bool aside = gate_ || end == ProductEnd::kAdd;
  if (stored_.memory() != be.memory()) stored_ = Tensor(be.memory());
  if (aside) stored_.Resize(DType::kF32, x.rows, gate_ ? 2 * y.cols : y.cols);
  const MutableTensorView all = aside ? stored_.mutable_view() : y;
  std::vector<DecodeTask> tasks;
  int64_t column = 0;
  for (const Linear* part : parts_) {
    tasks.push_back({x, part->weight, part->bias, all.Cols(column, part->weight.rows)});
    column += part->weight.rows;
  }
  be.DecodeProducts(tasks);
  if (!aside) return;
  const MutableTensorView result = all.Cols(0, y.cols);
  if (gate_) be.GateMul(result, all.Cols(y.cols, y.cols), *gate_);
  if (end == ProductEnd::kAdd) {
    be.Add(result, y);
  } else {
    be.Convert(result, y);
  }
}

namespace {

// The largest of a size over the layers.
template <typename Size>
int64_t Largest(const ModelShape& s, Size&& size) {
  int64_t most = 0;
  for (const LayerShape& layer : s.AllLayers()) most = std::max(most, std::invoke(size, layer));
  return most;
}

int64_t RecurrentWidth(const LayerShape& layer) {
  const RecurrentShape& s = layer.recurrent;
  if (layer.attends()) return 0;
  return s.key_heads == 0 ? 4 * s.channels : 2 * s.channels + 2 * s.value_width() + 2 * s.value_heads;
}

int64_t GateWidth(const LayerShape& layer) { return layer.output_gate ? layer.query_width() : 0; }

}  // namespace

int64_t Workspace::Bytes(const ModelShape& s, int64_t tokens, int64_t tile_rows) {
  const int64_t tile = 3 * s.hidden + 2 * s.layer_embedding + 2 * Largest(s, &LayerShape::query_width) +
                       2 * Largest(s, &LayerShape::key_width) + Largest(s, &LayerShape::inner_width) +
                       Largest(s, GateWidth) + Largest(s, RecurrentWidth);
  const int64_t experts = Largest(s, [](const LayerShape& l) { return int64_t{l.mixture.experts}; });
  const int64_t mixture = experts > 0 ? std::min(tokens, kMixtureRows) * (3 * s.hidden + experts) : 0;
  return BytesOf(DType::kF32, tokens * s.hidden + tile_rows * tile + mixture);
}

Workspace::Workspace(const ModelShape& s, int64_t rows, DeviceMemory* memory)
    : tile_rows(rows),
      normed(DType::kF32, rows, s.hidden, memory),
      q(DType::kF32, rows, Largest(s, &LayerShape::query_width), memory),
      kv(DType::kF32, rows, 2 * Largest(s, &LayerShape::key_width), memory),
      attended(DType::kF32, rows, Largest(s, &LayerShape::query_width), memory),
      gate(DType::kF32, rows, Largest(s, GateWidth), memory),
      inner(DType::kF32, rows, Largest(s, &LayerShape::inner_width), memory),
      out(DType::kF32, rows, s.hidden, memory),
      gathered(DType::kF32, rows, s.hidden, memory),
      all_q(memory),
      tail_q(memory),
      question_q(memory),
      sum_q(memory),
      some_keys(memory),
      some_values(memory),
      embedding(memory) {}

void RecurrentSpace::Fit(const RecurrentShape& s, int64_t mixed_width, int64_t tile_rows) {
  const bool recurs = s.key_heads > 0;
  inputs.Resize(DType::kF32, tile_rows, mixed_width);
  convolved.Resize(DType::kF32, tile_rows, s.channels);
  gates.Resize(DType::kF32, recurs ? tile_rows : 0, s.value_width());
  steps.Resize(DType::kF32, recurs ? tile_rows : 0, 2 * s.value_heads);
  outputs.Resize(DType::kF32, recurs ? tile_rows : 0, s.value_width());
}

void Workspace::Fit(const LayerShape& layer) {
  q.Resize(DType::kF32, tile_rows, layer.query_width());
  kv.Resize(DType::kF32, tile_rows, 2 * layer.key_width());
  attended.Resize(DType::kF32, tile_rows, layer.query_width());
  gate.Resize(DType::kF32, tile_rows, GateWidth(layer));
  inner.Resize(DType::kF32, tile_rows, layer.inner_width());
}

}  // namespace coppice
