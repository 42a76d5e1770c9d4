// Attention in its forms.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/gpu/fake/fake_query.h"

namespace coppice::gpu::fake {

namespace {

void StoreHead(const KernelCall& k, int64_t row, int64_t head, const std::vector<float>& sums, float total) {
  const auto dim = static_cast<int64_t>(sums.size());
  float* out = k.P<float>("out", dim, row * k.I("so") + head * dim);
  for (int64_t c = 0; c < dim; ++c) out[c] = total == 0 ? 0 : sums[static_cast<size_t>(c)] / total;
}

// Believes `tiles`: keys in full tiles are not checked, and those outside are not read.
template <bool kAlibi>
void Attention(const KernelCall& k) {
  k.CheckGrid(CeilDiv(k.I("m"), 128), kAny);
  const int64_t n = k.I("n");
  const int64_t window = k.I("window");
  for (int64_t i = 0; i < k.I("m"); ++i) {
    const int32_t* tile = k.P<int32_t>("tiles", 4, i / 128 * 4);
    if (tile[0] > tile[1] || tile[1] > tile[2] || tile[2] > tile[3]) Fault("attention: tiles do not ascend");
    for (int64_t head = 0; head < k.grid(1); ++head) {
      const Query query(k, i, head, kAlibi);
      std::vector<int64_t> keys;
      for (int64_t j = int64_t{tile[0]} * 128; j < int64_t{tile[3]} * 128; ++j) {
        const bool full = j >= int64_t{tile[1]} * 128 && j < int64_t{tile[2]} * 128;
        if (full || (j < n && query.Sees(j, window))) keys.push_back(j);
      }
      std::vector<float> out;
      float total = 0;
      query.Attend(keys, out, total);
      StoreHead(k, i, head, out, total);
    }
  }
}

template <bool kAlibi>
void SparseAttention(const KernelCall& k) {
  k.CheckGrid(kAny, kAny);
  const int64_t n = k.I("n");
  const int64_t block_rows = k.I("key_block");
  const int64_t words = k.I("words");
  const int64_t window = k.I("window");
  for (int64_t t = 0; t < k.grid(0); ++t) {
    const int32_t* tile = k.P<int32_t>("tiles", 3, 3 * t);
    if (tile[1] < 1 || tile[1] > 64) Fault("sparse_attention: a tile of too many queries");
    for (int64_t head = 0; head < k.grid(1); ++head) {
      const int64_t entry = tile[2] * k.grid(1) + head;
      const int32_t* list = k.P<int32_t>("lists", 4, 4 * entry);
      std::vector<int64_t> listed;
      const int32_t* blocks = list[1] > 0 ? k.P<int32_t>("blocks", list[1], list[0]) : nullptr;
      for (int32_t b = 0; b < list[1]; ++b) {
        for (int64_t j = blocks[b] * block_rows; j < std::min(n, (blocks[b] + 1) * block_rows); ++j)
          listed.push_back(j);
      }
      const int32_t* columns = list[3] > 0 ? k.P<int32_t>("columns", list[3], list[2]) : nullptr;
      for (int32_t c = 0; c < list[3]; ++c) {
        const int64_t block = columns[c] / std::max<int64_t>(block_rows, 1);
        const bool again =
            words > 0 && (*k.P<uint32_t>("chosen", 1, entry * words + block / 32) >> (block % 32) & 1);
        if (!again) listed.push_back(columns[c]);
      }
      for (int64_t i = tile[0]; i < tile[0] + tile[1]; ++i) {
        const Query query(k, i, head, kAlibi);
        std::vector<int64_t> keys;
        std::ranges::copy_if(listed, std::back_inserter(keys),
                             [&](int64_t j) { return query.Sees(j, window); });
        std::vector<float> out;
        float total = 0;
        query.Attend(keys, out, total);
        StoreHead(k, i, head, out, total);
      }
    }
  }
}

template <bool kAlibi>
void DecodeAttention(const KernelCall& k) {
  const int64_t unit = k.I("unit");
  const int64_t heads = k.grid(1) * unit;
  const int64_t pieces = k.I("pieces");
  const int64_t dim = k.I("head_dim");
  k.CheckGrid(kAny, kAny, pieces);
  if (unit < 1 || unit > 16 || k.I("group") % unit != 0) Fault("decode_attention: its unit");
  for (int64_t i = 0; i < k.grid(0); ++i) {
    for (int64_t head = 0; head < heads; ++head) {
      const int32_t* range = k.P<int32_t>("ranges", 3, 3 * (i * k.grid(1) + head / unit));
      if (range[1] > 256 * pieces) Fault("decode_attention: too few pieces");
      const Query query(k, i, head, kAlibi);
      for (int64_t piece = 0; piece * 256 < range[1]; ++piece) {
        std::vector<int64_t> keys;
        for (int64_t j = piece * 256; j < std::min<int64_t>((piece + 1) * 256, range[1]); ++j)
          keys.push_back(range[2] >= 0 ? *k.P<int32_t>("list", 1, range[2] + j) : range[0] + j);
        std::vector<float> out;
        float total = 0;
        const float best = query.Attend(keys, out, total);
        const int64_t place = (i * heads + head) * pieces + piece;
        float* stats = k.P<float>("stats", 2, 2 * place);
        stats[0] = best * kLog2E;
        stats[1] = total;
        std::ranges::copy(out, k.P<float>("partial", dim, place * dim));
      }
    }
  }
}

void MergeDecode(const KernelCall& k) {
  k.CheckGrid(kAny, kAny);
  const int64_t heads = k.grid(1);
  const int64_t unit = k.I("unit");
  const int64_t dim = k.I("head_dim");
  for (int64_t i = 0; i < k.grid(0); ++i) {
    for (int64_t head = 0; head < heads; ++head) {
      const int32_t count = k.P<int32_t>("ranges", 3, 3 * (i * (heads / unit) + head / unit))[1];
      const int64_t used = (count + 255) / 256;
      const int64_t place = (i * heads + head) * k.I("pieces");
      float best = -kInfinity;
      for (int64_t p = 0; p < used; ++p) best = std::max(best, *k.P<float>("stats", 1, 2 * (place + p)));
      std::vector<float> sums(static_cast<size_t>(dim));
      float total = 0;
      for (int64_t p = 0; p < used; ++p) {
        const float* stats = k.P<float>("stats", 2, 2 * (place + p));
        const float* part = k.P<float>("partial", dim, (place + p) * dim);
        const float share = std::exp2(stats[0] - best);
        total += share * stats[1];
        for (int64_t c = 0; c < dim; ++c) sums[static_cast<size_t>(c)] += share * part[c];
      }
      StoreHead(k, i, head, sums, total);
    }
  }
}

// `a` is "!" for the variants that need aligned pointers and sizes.
#define COPPICE_ATTENTION(a)                                                                       \
  "q:f32*" a " k:bf16*" a " v:bf16*" a                                                             \
  " query_positions:i32* key_positions:i32* tiles:i32* slopes:f32* out:f32*" a                     \
  " lse:f32* m:i32 n:i32 group:i32 head_dim:i32" a " sq:i32" a " sk:i32" a " sv:i32" a " so:i32" a \
  " window:i32 scale:f32 flags:i32"
#define COPPICE_SPARSE(a)                                                                                \
  "q:f32*" a " k:bf16*" a " v:bf16*" a                                                                   \
  " query_positions:i32* key_positions:i32* tiles:i32* lists:i32* blocks:i32* columns:i32* chosen:i32* " \
  "slopes:f32* out:f32*" a " m:i32 n:i32 group:i32 head_dim:i32" a " sq:i32" a " sk:i32" a " sv:i32" a   \
  " so:i32" a " words:i32 key_block:i32 window:i32 scale:f32"
#define COPPICE_DECODE_ATTENTION(a)                                                                     \
  "q:f32*" a " k:bf16*" a " v:bf16*" a                                                                  \
  " query_positions:i32* key_positions:i32* slopes:f32* ranges:i32* list:i32* partial:f32* stats:f32* " \
  "pieces:i32 group:i32 unit:i32 head_dim:i32" a " sq:i32" a " sk:i32" a " sv:i32" a " scale:f32"

constexpr FakeKernel kAttentionKernels[] = {
    {"attention_d64", COPPICE_ATTENTION("!"), 8, Attention<false>},
    {"attention_d128", COPPICE_ATTENTION("!"), 8, Attention<false>},
    {"attention_alibi_d64", COPPICE_ATTENTION("!"), 8, Attention<true>},
    {"attention_alibi_d128", COPPICE_ATTENTION("!"), 8, Attention<true>},
    {"attention_any", COPPICE_ATTENTION(""), 8, Attention<true>},
    {"sparse_attention_d64", COPPICE_SPARSE("!"), 4, SparseAttention<false>},
    {"sparse_attention_d128", COPPICE_SPARSE("!"), 4, SparseAttention<false>},
    {"sparse_attention_any", COPPICE_SPARSE(""), 4, SparseAttention<true>},
    {"decode_attention_d64", COPPICE_DECODE_ATTENTION("!"), 4, DecodeAttention<false>},
    {"decode_attention_d128", COPPICE_DECODE_ATTENTION("!"), 4, DecodeAttention<false>},
    {"decode_attention_alibi_d64", COPPICE_DECODE_ATTENTION("!"), 4, DecodeAttention<true>},
    {"decode_attention_alibi_d128", COPPICE_DECODE_ATTENTION("!"), 4, DecodeAttention<true>},
    {"decode_attention_any", COPPICE_DECODE_ATTENTION(""), 4, DecodeAttention<true>},
    {"merge_decode", "partial:f32* stats:f32* ranges:i32* out:f32* pieces:i32 unit:i32 head_dim:i32 so:i32",
     4, MergeDecode},
};

}  // namespace

std::span<const FakeKernel> AttentionKernels() { return kAttentionKernels; }

}  // namespace coppice::gpu::fake
