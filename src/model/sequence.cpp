#include "model/sequence.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace coppice {

namespace {

// Rows beyond the prompt that a layer's cache has room for from the start. The cache grows for longer
// answers: most are shorter, and an unlimited one would otherwise reserve the model's whole context at once
// (4 GiB for 131,072 tokens of a 1b model).
constexpr int64_t kReservedAnswer = 1024;

// The type of parked hidden states. A parked state goes on through every layer above, and a few of its
// channels are far larger than the rest: with one scale per 32 values their neighbours would be lost.
DType ParkedType(DType cache) { return cache == DType::kQ8_0 ? DType::kBF16 : cache; }

}  // namespace

int64_t ParkedBytes(const ModelShape& shape, DType cache_type) {
  return BytesOf(ParkedType(cache_type), shape.hidden);
}

int64_t LayerBytes(const LayerShape& layer, DType cache_type) {
  return 2 * BytesOf(cache_type, layer.key_width());
}

std::vector<int64_t> LayerBytes(const ModelShape& shape, DType cache_type) {
  std::vector<int64_t> bytes;
  for (const LayerShape& layer : shape.layers) bytes.push_back(LayerBytes(layer, cache_type));
  return bytes;
}

int64_t TokenBytes(const ModelShape& shape, DType cache_type) {
  const std::vector<int64_t> bytes = LayerBytes(shape, cache_type);
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

void CheckCacheType(const ModelShape& shape, DType cache_type) {
  const DTypeInfo& type = Info(cache_type);
  for (const LayerShape& layer : shape.layers) {
    if (!layer.attends() || layer.head_dim % type.block_elements == 0) continue;
    throw Error(
        "[model] keys and values cannot be kept in {}: its blocks have {} values, the heads of this {} model "
        "{}",
        type.name, type.block_elements, shape.architecture, layer.head_dim);
  }
}

SequenceState::SequenceState(const ModelConfig& config, std::span<const float> rope_factors, DType cache_type,
                             int64_t prompt, int64_t most_positions, DeviceMemory* memory)
    : aux(ParkedType(cache_type), config.shape.hidden, memory),
      ledger(config.shape, prompt),
      prompt_tokens(prompt),
      capacity(most_positions) {
  const ModelShape& s = config.shape;
  CheckCacheType(s, cache_type);
  for (const LayerShape& layer : s.layers)
    layers.emplace_back(LayerCache(cache_type, layer.kv_heads, layer.head_dim, memory));
  for (const RopeConfig& own : config.ropes) {
    const auto factors = ropes.empty() ? rope_factors : std::span<const float>();
    ropes.emplace_back(MakeRopeFrequencies(own, factors, prompt_tokens), own.interleaved, memory);
  }
  ReachRope(prompt_tokens);
}

void SequenceState::ReachRope(int64_t positions) {
  for (RopeTables& rope : ropes) rope.Reach(positions);
}

std::vector<int32_t> SequenceState::Enter(const TokenSet& entering, bool compact) {
  COPPICE_CHECK(entering.universe() == prompt_tokens && entering.Contains(prompt_tokens - 1));
  input = entering.ToRows();
  entered = entering.size();
  std::vector<int32_t> positions = input;
  if (compact) {
    std::iota(positions.begin(), positions.end(), 0);
    prompt_tokens = entered;
  }
  depth.assign(static_cast<size_t>(prompt_tokens), 0);
  for (const int32_t p : positions) depth[static_cast<size_t>(p)] = static_cast<int32_t>(layers.size());
  return positions;
}

void SequenceState::RestorePrefix() {
  COPPICE_CHECK(prefix.rows < entered && input[static_cast<size_t>(prefix.rows) - 1] == prefix.rows - 1);
  COPPICE_CHECK(prefix.state->layers.size() <= layers.size());
  const auto& checkpoints = prefix.state->checkpoints;
  const auto at = std::ranges::find_if(
      checkpoints, [&](const auto& checkpoint) { return checkpoint->rows == prefix.rows; });
  COPPICE_CHECK(!prefix.state->has_states || at != checkpoints.end());
  for (size_t l = 0; l < prefix.state->layers.size(); ++l) {
    layers[l].cache.Reserve(prompt_tokens + RoomForAnswer());
    RestoreKeys(prefix, l, layers[l].cache);
    if (prefix.state->has_states) layers[l].recurrent.now = (*at)->layers[l].Clone();
  }
  ledger.cached_tokens = prefix.rows;
}

int64_t SequenceState::RoomForAnswer() const {
  return std::min(capacity - ledger.prompt_tokens(), kReservedAnswer);
}

void SequenceState::Reserve(int l, int64_t rows) { layer(l).cache.Reserve(rows + RoomForAnswer()); }

void SequenceState::DropKeys(int l) { layer(l).cache.Clear(); }

void SequenceState::DropLast(int64_t tokens) {
  for (LayerState& layer : layers) {
    if (layer.cache.width() > 0) {
      layer.cache.DropLast(tokens);
    } else if (layer.recurrent.bytes() > 0) {
      layer.recurrent.DropLast(tokens);
    }
  }
  depth.resize(depth.size() - static_cast<size_t>(tokens));
  this->tokens.resize(depth.size());
  ledger.DropTokens(tokens);
}

int64_t SequenceState::kv_bytes() const {
  int64_t bytes = 0;
  for (const LayerState& layer : layers) bytes += layer.cache.bytes() + layer.recurrent.bytes();
  return bytes;
}

int64_t SequenceState::dense_kv_bytes(int64_t tokens) const {
  int64_t token = 0;
  int64_t states = 0;
  for (const LayerState& layer : layers) {
    token += 2 * BytesOf(layer.cache.dtype(), layer.cache.width());
    states += layer.recurrent.bytes();
  }
  return tokens * token + states;
}

}  // namespace coppice
