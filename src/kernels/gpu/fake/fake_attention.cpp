// Attention in its forms, the softmax weights that score keys, and scores of units.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/gpu/fake/fake_kernels.h"
#include "tensor/dtype.h"

namespace coppice::gpu::fake {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLog2E = 1.44269504f;

float Rounded(float x) { return ToFloat(ToBF16(x)); }

// A query of one head: the scores of keys, and the values that they weigh.
class Query {
 public:
  Query(const KernelCall& k, int64_t row, int64_t head, bool alibi)
      : k_(k),
        dim_(k.I("head_dim")),
        column_(head / k.I("group") * dim_),
        key_stride_(k.I("sk")),
        scale_(k.F("scale")),
        positions_(k.At("key_positions")),
        keys_(k.At("k")),
        alibi_(alibi) {
    const float* q = k.P<float>("q", dim_, row * k.I("sq") + head * dim_);
    for (int64_t c = 0; c < dim_; ++c) query_.push_back(Rounded(q[c]));
    position_ = *k.P<int32_t>("query_positions", 1, row);
    if (alibi) slope_ = *k.P<float>("slopes", 1, head);
  }

  bool Sees(int64_t key, int64_t window) const {
    const int32_t at = *k_.P<int32_t>(positions_, 1, key);
    return at <= position_ && (window == 0 || at > position_ - window);
  }
  float Score(int64_t key) const {
    const BF16* row = k_.P<BF16>(keys_, dim_, key * key_stride_ + column_);
    float dot = 0;
    for (int64_t c = 0; c < dim_; ++c) dot += query_[static_cast<size_t>(c)] * Widened(row[c]);
    float score = dot * scale_;
    if (alibi_) score += slope_ * static_cast<float>(*k_.P<int32_t>(positions_, 1, key) - position_);
    return score;
  }
  // sum of weights, and out [head_dim] = their sum of values, relative to the largest score, which it
  // returns.
  float Attend(const std::vector<int64_t>& keys, std::vector<float>& out, float& total) const {
    const int64_t stride = k_.I("sv");
    const KernelCall::Pointer values = k_.At("v");
    std::vector<float> scores;
    float best = -kInfinity;
    for (const int64_t key : keys) best = std::max(best, scores.emplace_back(Score(key)));
    out.assign(static_cast<size_t>(dim_), 0);
    total = 0;
    for (size_t j = 0; j < keys.size(); ++j) {
      const float weight = std::exp(scores[j] - best);
      total += weight;
      const BF16* row = k_.P<BF16>(values, dim_, keys[j] * stride + column_);
      for (int64_t c = 0; c < dim_; ++c) out[static_cast<size_t>(c)] += weight * Widened(row[c]);
    }
    return best;
  }

 private:
  static float Widened(BF16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

  const KernelCall& k_;
  int64_t dim_;
  int64_t column_;
  int64_t key_stride_;
  float scale_;
  KernelCall::Pointer positions_;
  KernelCall::Pointer keys_;
  bool alibi_;
  std::vector<float> query_;
  int32_t position_ = 0;
  float slope_ = 0;
};

void StoreHead(const KernelCall& k, int64_t row, int64_t head, const std::vector<float>& sums, float total) {
  const auto dim = static_cast<int64_t>(sums.size());
  float* out = k.P<float>("out", dim, row * k.I("so") + head * dim);
  for (int64_t c = 0; c < dim; ++c) out[c] = total == 0 ? 0 : sums[static_cast<size_t>(c)] / total;
}

// Believes `tiles`: keys in full tiles are not checked, and those outside are not read.
template <bool kAlibi>
void Attention(const KernelCall& k) {
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
  if (unit < 1 || unit > 16 || k.I("group") % unit != 0 || pieces != k.grid(2))
    Fault("decode_attention: its grid");
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

// partial [pieces, heads, m, 2]: the largest score times log2(e), and the sum of weights relative to it.
template <bool kAlibi>
void AttentionLse(const KernelCall& k) {
  const int64_t m = k.I("m");
  const int64_t window = k.I("window");
  for (int64_t piece = 0; piece < k.grid(2); ++piece) {
    for (int64_t head = 0; head < k.grid(1); ++head) {
      for (int64_t i = 0; i < m; ++i) {
        const Query query(k, i, head, kAlibi);
        std::vector<float> scores;
        float best = -kInfinity;
        for (int64_t j = piece * 4096; j < std::min(k.I("n"), (piece + 1) * 4096); ++j) {
          if (query.Sees(j, window)) best = std::max(best, scores.emplace_back(query.Score(j) * kLog2E));
        }
        float total = 0;
        for (const float score : scores) total += std::exp2(score - best);
        float* entry = k.P<float>("partial", 2, ((piece * k.grid(1) + head) * m + i) * 2);
        entry[0] = best;
        entry[1] = total;
      }
    }
  }
}

void MergeLse(const KernelCall& k) {
  const int64_t count = k.I("count");
  for (int64_t i = 0; i < count; ++i) {
    float best = -kInfinity;
    for (int64_t p = 0; p < k.I("pieces"); ++p)
      best = std::max(best, *k.P<float>("partial", 1, (p * count + i) * 2));
    float total = 0;
    for (int64_t p = 0; p < k.I("pieces"); ++p) {
      const float* entry = k.P<float>("partial", 2, (p * count + i) * 2);
      if (entry[1] > 0) total += entry[1] * std::exp2(entry[0] - best);
    }
    *k.P<float>("lse", 1, i) = best + std::log2(total);
  }
}

template <bool kAlibi>
void AttentionMass(const KernelCall& k) {
  const int64_t m = k.I("m");
  const int64_t n = k.I("n");
  const int64_t flags = k.I("flags");
  const int64_t window = k.I("window");
  for (int64_t head = 0; head < k.grid(1); ++head) {
    std::vector<float> mass(static_cast<size_t>(n));
    if ((flags & 4) != 0) std::copy_n(k.P<float>("partial", n, head * n), n, mass.begin());
    for (int64_t i = 0; i < m; ++i) {
      const Query query(k, i, head, kAlibi);
      const float lse = *k.P<float>("lse", 1, head * m + i);
      const float weight = (flags & 2) != 0 ? *k.P<float>("weights", 1, i) : 1;
      for (int64_t j = 0; j < n; ++j) {
        if (!query.Sees(j, window)) continue;
        const float share = weight * std::exp2(query.Score(j) * kLog2E - lse);
        float& sum = mass[static_cast<size_t>(j)];
        sum = (flags & 1) != 0 ? std::max(sum, share) : sum + share;
      }
    }
    std::ranges::copy(mass, k.P<float>("partial", n, head * n));
  }
}

void MergeMass(const KernelCall& k) {
  for (int64_t j = 0; j < k.I("n"); ++j) {
    float total = 0;
    for (int64_t head = 0; head < k.I("heads"); ++head) {
      const float value = *k.P<float>("partial", 1, head * k.I("n") + j);
      total = (k.I("flags") & 1) != 0 ? std::max(total, value) : total + value;
    }
    *k.P<float>("mass", 1, j) = total;
  }
}

void AttentionScores(const KernelCall& k) {
  const int64_t window = k.I("window");
  for (int64_t i = 0; i < k.I("m"); ++i) {
    for (int64_t head = 0; head < k.grid(1); ++head) {
      const Query query(k, i, head, true);
      float* y = k.P<float>("y", k.I("n"), (i * k.grid(1) + head) * k.I("sy"));
      for (int64_t j = 0; j < k.I("n"); ++j)
        y[j] = query.Sees(j, window) ? query.Score(j) * kLog2E : -kInfinity;
    }
  }
}

void SoftmaxRows(const KernelCall& k) {
  for (int64_t i = 0; i < k.grid(0); ++i) {
    float* y = k.P<float>("y", k.I("n"), i * k.I("sy"));
    const float best = *std::max_element(y, y + k.I("n"));
    float total = 0;
    for (int64_t j = 0; j < k.I("n"); ++j) total += y[j] = std::exp2(y[j] - best);
    for (int64_t j = 0; j < k.I("n"); ++j) y[j] /= total;
  }
}

void UnitQuery(const KernelCall& k) {
  const int64_t dim = k.I("head_dim");
  const int64_t m = k.I("m");
  for (int64_t g = 0; g < k.grid(0); ++g) {
    float* y = k.P<float>("y", dim, g * dim);
    std::fill_n(y, dim, 0.0f);
    for (int64_t head = g * k.I("group"); head < (g + 1) * k.I("group"); ++head) {
      for (int64_t i = 0; i < m; ++i) {
        const float* q = k.P<float>("q", dim, i * k.I("sq") + head * dim);
        for (int64_t c = 0; c < dim; ++c) y[c] += q[c] / static_cast<float>(m);
      }
    }
  }
}

void UnitScores(const KernelCall& k) {
  const int64_t width = k.I("width");
  const int64_t unit = k.I("unit");
  const bool maximum = (k.I("flags") & 1) != 0;
  const float* query = k.P<float>("query", width);
  for (int64_t u = 0; u < k.grid(0); ++u) {
    const int64_t end = std::min((u + 1) * unit, k.I("n"));
    std::vector<float> pooled(static_cast<size_t>(width), maximum ? -kInfinity : 0);
    for (int64_t j = u * unit; j < end; ++j) {
      const BF16* key = k.P<BF16>("k", width, j * k.I("sk"));
      for (size_t c = 0; c < pooled.size(); ++c)
        pooled[c] = maximum ? std::max(pooled[c], ToFloat(key[c])) : pooled[c] + ToFloat(key[c]);
    }
    float sum = 0;
    for (size_t c = 0; c < pooled.size(); ++c)
      sum += query[c] * (maximum ? pooled[c] : pooled[c] / static_cast<float>(end - u * unit));
    *k.P<float>("y", 1, u) = sum / static_cast<float>(k.I("heads"));
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
#define COPPICE_LSE(a)                                                                                     \
  "q:f32*" a " k:bf16*" a                                                                                  \
  " query_positions:i32* key_positions:i32* slopes:f32* partial:f32* m:i32 n:i32 group:i32 head_dim:i32" a \
  " sq:i32" a " sk:i32" a " window:i32 scale:f32"
#define COPPICE_MASS(a)                                                                                  \
  "q:f32*" a " k:bf16*" a                                                                                \
  " query_positions:i32* key_positions:i32* slopes:f32* lse:f32* weights:f32* partial:f32* m:i32 n:i32 " \
  "group:i32 head_dim:i32" a " sq:i32" a " sk:i32" a " window:i32 scale:f32 flags:i32"
#define COPPICE_DECODE_ATTENTION(a)                                                                     \
  "q:f32*" a " k:bf16*" a " v:bf16*" a                                                                  \
  " query_positions:i32* key_positions:i32* slopes:f32* ranges:i32* list:i32* partial:f32* stats:f32* " \
  "pieces:i32 group:i32 unit:i32 head_dim:i32" a " sq:i32" a " sk:i32" a " sv:i32" a " scale:f32"

constexpr FakeKernel kKernels[] = {
    {"attention_d64", COPPICE_ATTENTION("!"), 8, Attention<false>},
    {"attention_d128", COPPICE_ATTENTION("!"), 8, Attention<false>},
    {"attention_alibi_d64", COPPICE_ATTENTION("!"), 8, Attention<true>},
    {"attention_alibi_d128", COPPICE_ATTENTION("!"), 8, Attention<true>},
    {"attention_any", COPPICE_ATTENTION(""), 8, Attention<true>},
    {"sparse_attention_d64", COPPICE_SPARSE("!"), 4, SparseAttention<false>},
    {"sparse_attention_d128", COPPICE_SPARSE("!"), 4, SparseAttention<false>},
    {"sparse_attention_any", COPPICE_SPARSE(""), 4, SparseAttention<true>},
    {"attention_lse_d64", COPPICE_LSE("!"), 4, AttentionLse<false>},
    {"attention_lse_d128", COPPICE_LSE("!"), 4, AttentionLse<false>},
    {"attention_lse_any", COPPICE_LSE(""), 4, AttentionLse<true>},
    {"attention_mass_d64", COPPICE_MASS("!"), 4, AttentionMass<false>},
    {"attention_mass_d128", COPPICE_MASS("!"), 4, AttentionMass<false>},
    {"attention_mass_any", COPPICE_MASS(""), 4, AttentionMass<true>},
    {"attention_scores_any",
     "q:f32* k:bf16* query_positions:i32* key_positions:i32* slopes:f32* y:f32* m:i32 n:i32 group:i32 "
     "head_dim:i32 sq:i32 sk:i32 sy:i32 window:i32 scale:f32",
     4, AttentionScores},
    {"decode_attention_d64", COPPICE_DECODE_ATTENTION("!"), 4, DecodeAttention<false>},
    {"decode_attention_d128", COPPICE_DECODE_ATTENTION("!"), 4, DecodeAttention<false>},
    {"decode_attention_alibi_d64", COPPICE_DECODE_ATTENTION("!"), 4, DecodeAttention<true>},
    {"decode_attention_alibi_d128", COPPICE_DECODE_ATTENTION("!"), 4, DecodeAttention<true>},
    {"decode_attention_any", COPPICE_DECODE_ATTENTION(""), 4, DecodeAttention<true>},
    {"merge_decode", "partial:f32* stats:f32* ranges:i32* out:f32* pieces:i32 unit:i32 head_dim:i32 so:i32",
     4, MergeDecode},
    {"merge_lse", "partial:f32* lse:f32* pieces:i32 count:i32", 4, MergeLse},
    {"merge_mass", "partial:f32* mass:f32* heads:i32 n:i32 flags:i32", 4, MergeMass},
    {"softmax_rows", "y:f32* n:i32 sy:i32", 4, SoftmaxRows},
    {"unit_query", "q:f32* y:f32* m:i32 group:i32 head_dim:i32 sq:i32", 4, UnitQuery},
    {"unit_scores", "query:f32* k:bf16* y:f32* n:i32 width:i32 heads:i32 unit:i32 sk:i32 flags:i32", 4,
     UnitScores},
};

}  // namespace

std::span<const FakeKernel> AttentionKernels() { return kKernels; }

}  // namespace coppice::gpu::fake
