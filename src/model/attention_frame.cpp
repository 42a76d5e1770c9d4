#include "model/attention_frame.h"

#include <algorithm>

namespace coppice {

namespace {

// The number of kv heads per call, chosen so that a call takes some tenths of a second at 100 GFLOP/s per
// thread: a run cannot be cancelled or paused within a call. A tile of 512 rows over 32k keys with the heads
// of a 7b shape is 275 GFLOP. Calls divide heads, not rows, so that each head's keys pass through the CPU
// caches once.
int HeadsOfCall(const AttentionInput& in, int threads) {
  constexpr double kFlopsOfThread = 25e9;
  const AttentionShape& s = in.shape;
  const double of_head = 4.0 * static_cast<double>(in.queries.rows) * static_cast<double>(in.keys.rows) *
                         (s.heads / s.kv_heads) * s.head_dim;
  const double heads = kFlopsOfThread * threads / of_head;
  return heads >= s.kv_heads ? s.kv_heads : std::max(1, static_cast<int>(heads));
}

// Removes the keys after the tile's last position, which none of its queries may attend.
AttentionInput Visible(AttentionInput in) {
  const auto end =
      std::upper_bound(in.key_positions.begin(), in.key_positions.end(), in.query_positions.back());
  const int64_t count = end - in.key_positions.begin();
  in.keys = in.keys.Rows(0, count);
  in.values = in.values.Rows(0, count);
  in.key_positions = in.key_positions.first(static_cast<size_t>(count));
  return in;
}

}  // namespace

AttentionInput AttentionFrame::Input(const TensorView& queries, int64_t first_row) const {
  const std::span<const int32_t> positions(query_positions);
  return {shape,
          queries,
          keys,
          values,
          positions.subspan(static_cast<size_t>(first_row), static_cast<size_t>(queries.rows)),
          key_positions.front()};
}

AttentionInput HeadInput(const AttentionInput& in, int kv_head, std::span<const int32_t> key_positions,
                         int count) {
  const AttentionShape& s = in.shape;
  const int group = s.heads / s.kv_heads;
  const int64_t c = s.head_dim;
  AttentionInput one = in;
  one.shape = s.OfHeads(kv_head * group, count * group, count);
  one.queries = in.queries.Cols(kv_head * group * c, count * group * c);
  one.keys = in.keys.Cols(kv_head * c, count * c);
  if (!in.values.empty()) one.values = in.values.Cols(kv_head * c, count * c);
  one.key_positions = key_positions;
  one.first_kv_head += kv_head;
  return one;
}

void Attend(const AttentionFrame& frame, const AttentionInput& in, ProductKind kind, MutableTensorView out,
            const RunControl& control, Backend& be) {
  const auto attend = [&](const AttentionInput& some, MutableTensorView to) {
    kind == ProductKind::kDecode ? be.DecodeAttention(some, {}, to) : be.Attention(some, to);
  };
  const AttentionShape& s = frame.shape;
  const int together = frame.ragged() ? 1 : HeadsOfCall(in, be.threads());
  if (together == s.kv_heads) return attend(Visible(in), out);
  const int64_t columns = int64_t{s.heads / s.kv_heads} * s.head_dim;
  for (int g = 0; g < s.kv_heads; g += together) {
    if (g > 0) control.Pause();
    const int count = std::min(together, s.kv_heads - g);
    attend(Visible(HeadInput(in, g, frame.KeyPositions(g), count)), out.Cols(g * columns, count * columns));
  }
}

void AttendTogether(std::span<const OwnAttention> parts, MutableTensorView out, Backend& be) {
  std::vector<AttentionInput> inputs;
  for (const auto& [frame, queries] : parts) {
    if (!frame.ragged()) inputs.push_back(Visible(frame.Input(queries, 0)));
  }
  if (inputs.size() == parts.size()) return be.DecodeAttentions(inputs, out);
  int64_t first = 0;
  for (const auto& [frame, queries] : parts) {
    Attend(frame, frame.Input(queries, 0), ProductKind::kDecode, out.Rows(first, queries.rows), {}, be);
    first += queries.rows;
  }
}

}  // namespace coppice
