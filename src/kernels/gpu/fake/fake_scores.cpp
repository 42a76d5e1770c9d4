// The softmax weights that score keys, and scores of units.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/gpu/fake/fake_query.h"

namespace coppice::gpu::fake {

namespace {

// partial [pieces, heads, m, 2]: the largest score times log2(e), and the sum of weights relative to it.
template <bool kAlibi>
void AttentionLse(const KernelCall& k) {
  k.CheckGrid(CeilDiv(k.I("m"), 64), kAny, CeilDiv(k.I("n"), 4096));
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
  k.CheckGrid(CeilDiv(k.I("count"), 256));
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
  k.CheckGrid(CeilDiv(k.I("n"), 128), kAny);
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
  k.CheckGrid(CeilDiv(k.I("n"), 256));
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
  k.CheckGrid(CeilDiv(k.I("m"), 16), kAny, CeilDiv(k.I("n"), 128));
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
  k.CheckGrid(kAny);
  for (int64_t i = 0; i < k.grid(0); ++i) {
    float* y = k.P<float>("y", k.I("n"), i * k.I("sy"));
    const float best = *std::max_element(y, y + k.I("n"));
    float total = 0;
    for (int64_t j = 0; j < k.I("n"); ++j) total += y[j] = std::exp2(y[j] - best);
    for (int64_t j = 0; j < k.I("n"); ++j) y[j] /= total;
  }
}

void UnitQuery(const KernelCall& k) {
  k.CheckGrid(kAny, CeilDiv(k.I("head_dim"), 64));
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
  k.CheckGrid(CeilDiv(k.I("n"), k.I("unit")));
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
#define COPPICE_LSE(a)                                                                                     \
  "q:f32*" a " k:bf16*" a                                                                                  \
  " query_positions:i32* key_positions:i32* slopes:f32* partial:f32* m:i32 n:i32 group:i32 head_dim:i32" a \
  " sq:i32" a " sk:i32" a " window:i32 scale:f32"
#define COPPICE_MASS(a)                                                                                  \
  "q:f32*" a " k:bf16*" a                                                                                \
  " query_positions:i32* key_positions:i32* slopes:f32* lse:f32* weights:f32* partial:f32* m:i32 n:i32 " \
  "group:i32 head_dim:i32" a " sq:i32" a " sk:i32" a " window:i32 scale:f32 flags:i32"
constexpr FakeKernel kScoreKernels[] = {
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
    {"merge_lse", "partial:f32* lse:f32* pieces:i32 count:i32", 4, MergeLse},
    {"merge_mass", "partial:f32* mass:f32* heads:i32 n:i32 flags:i32", 4, MergeMass},
    {"softmax_rows", "y:f32* n:i32 sy:i32", 4, SoftmaxRows},
    {"unit_query", "q:f32* y:f32* m:i32 group:i32 head_dim:i32 sq:i32", 4, UnitQuery},
    {"unit_scores", "query:f32* k:bf16* y:f32* n:i32 width:i32 heads:i32 unit:i32 sk:i32 flags:i32", 4,
     UnitScores},
};

}  // namespace

std::span<const FakeKernel> ScoreKernels() { return kScoreKernels; }

}  // namespace coppice::gpu::fake
