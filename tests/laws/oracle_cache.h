// The oracle's methods that choose among keys and values: H2O, SnapKV, FastKV, StreamingLLM, Quest, and a
// given pattern for prefill. Written from the papers and docs/methods.md, without looking at the
// engine.
#pragma once

#include <functional>

#include "oracle.h"

namespace coppice::oracle {

// What a kv head still has in a layer.
inline Set Left(const Pass& pass, size_t layer, size_t g) {
  Set rows;
  for (size_t j = 0; j <= pass.current; ++j) {
    if (pass.Has(layer, j) && !pass.evicted[layer][g][j]) rows.push_back(j);
  }
  return rows;
}
inline void EvictAllBut(const Set& kept, Pass& pass, size_t layer, size_t g) {
  for (const size_t j : Without(Left(pass, layer, g), kept)) pass.evicted[layer][g][j] = 1;
}

// H2O (7.3): accumulates what every query gave to a key, over the query heads of a kv head; after the
// attention, the heaviest of those before the recent ones stay.
struct H2o : Method {
  double heavy, recent;
  H2o(double heavy_share, double recent_share) : heavy(heavy_share), recent(recent_share) {}

  std::vector<std::vector<Row>> sums;  // [layers][kv_heads][n]
  void Evict(Pass& pass, size_t layer) override {
    if (sums.empty()) sums.assign(pass.layers, std::vector<Row>(pass.model.kv_heads(), Row(pass.n, 0.0)));
    const bool prefill = pass.current < pass.prompt;
    for (size_t g = 0; g < pass.model.kv_heads(); ++g) {
      for (size_t h = g * pass.model.group(); h < (g + 1) * pass.model.group(); ++h) {
        for (const size_t i : prefill ? pass.alive : Set{pass.current})
          AddTo(sums[layer][g], pass.Weights(h, i));
      }
      const auto tokens = static_cast<double>(pass.prompt);
      const auto most = static_cast<size_t>(heavy * tokens);
      const auto newest = static_cast<size_t>(recent * tokens);
      const Set rows = Left(pass, layer, g);
      if (rows.size() <= most + newest) continue;
      const Set tail(rows.end() - static_cast<std::ptrdiff_t>(newest), rows.end());
      const Set best = Sorted(Best(Without(rows, tail), sums[layer][g], most, Scale::kShare, pass));
      EvictAllBut(Either(best, tail), pass, layer, g);
    }
  }
};

// SnapKV (7.4): after prefill's attention, what the last queries give to each earlier key, summed, pooled
// over neighbours; the best of each kv head stay, and the last.
struct SnapKv : Method {
  size_t cap, window, kernel;
  bool max_pool;
  SnapKv(size_t most, size_t queries, size_t pool_kernel, bool max)
      : cap(most), window(queries), kernel(pool_kernel), max_pool(max) {}

  void Evict(Pass& pass, size_t layer) override {
    if (pass.current >= pass.prompt) return;
    for (size_t g = 0; g < pass.model.kv_heads(); ++g) {
      const Set rows = Left(pass, layer, g);
      if (rows.size() <= cap) continue;
      const size_t prefix = rows.size() - window;
      Row sum(pass.n, 0.0);
      for (size_t i = prefix; i < rows.size(); ++i) {
        for (size_t h = g * pass.model.group(); h < (g + 1) * pass.model.group(); ++h)
          AddTo(sum, pass.Weights(h, rows[i]));
      }
      Row pooled(pass.n, 0.0);
      for (size_t a = 0; a < prefix; ++a) {  // zeros stand beyond both ends
        for (size_t b = a - std::min(a, kernel / 2); b <= std::min(prefix - 1, a + kernel / 2); ++b) {
          double& at = pooled[rows[a]];
          at = max_pool ? std::max(at, sum[rows[b]]) : at + sum[rows[b]] / static_cast<double>(kernel);
        }
      }
      const Set tail(rows.begin() + static_cast<std::ptrdiff_t>(prefix), rows.end());
      const Set best = Sorted(Best(Without(rows, tail), pooled, cap - window, Scale::kShare, pass));
      EvictAllBut(Either(best, tail), pass, layer, g);
    }
  }
};

// FastKV: SnapKV in every layer; and of the last layer that computes all tokens, the sum over kv heads of the
// same pooled scores says which tokens go on.
struct FastKv : SnapKv {
  size_t layer_of_choice, keep;
  FastKv(size_t layer, size_t go_on, size_t most, size_t queries, size_t pool_kernel)
      : SnapKv(most, queries, pool_kernel, false), layer_of_choice(layer), keep(go_on) {}

  void BeforeLayer(Pass& pass, size_t layer) override {
    if (layer != layer_of_choice + 1 || pass.alive.size() <= keep) return;
    const size_t prefix = pass.alive.size() - window;
    Row pooled(pass.n, 0.0);
    for (size_t i = prefix; i < pass.alive.size(); ++i) {
      const Row row = pass.MeanOverHeads(pass.alive[i]);
      for (size_t a = 0; a < prefix; ++a) {
        for (size_t b = a - std::min(a, kernel / 2); b <= std::min(prefix - 1, a + kernel / 2); ++b)
          pooled[pass.alive[a]] += row[pass.alive[b]];
      }
    }
    const Set tail(pass.alive.begin() + static_cast<std::ptrdiff_t>(prefix), pass.alive.end());
    const Set best = Sorted(Best(Without(pass.alive, tail), pooled, keep - window, Scale::kShare, pass));
    pass.Leave(Without(pass.alive, Either(best, tail)), layer, false, false);
  }
};

// StreamingLLM (7.2) after a dense prefill: between steps the cache holds the first and the last tokens, and
// a step attends these and its own. RoPE places tokens by their slots.
struct StreamingLlm : Method {
  size_t sink, recent;
  StreamingLlm(size_t sinks, size_t recents) : sink(sinks), recent(recents) {}

  void Evict(Pass& pass, size_t layer) override {
    for (size_t g = 0; g < pass.model.kv_heads(); ++g) {
      Set rows = Left(pass, layer, g);
      if (rows.size() <= sink + recent) continue;
      rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(sink),
                 rows.end() - static_cast<std::ptrdiff_t>(recent));
      EvictAllBut(rows, pass, layer, g);
    }
  }
  void StepBegins(Pass& pass) override {
    Set slots = Left(pass, 0, 0);
    slots.push_back(pass.current);
    for (size_t slot = 0; slot < slots.size(); ++slot) pass.place[slots[slot]] = static_cast<double>(slot);
  }
};

// Quest: each query head reads the pages with the largest upper bound of query times key, and the page of the
// current token.
struct Quest : Method {
  size_t budget, page, dense;
  Quest(size_t tokens, size_t page_tokens, size_t dense_layers)
      : budget(tokens), page(page_tokens), dense(dense_layers) {}

  void StepBeforeAttention(Pass& pass, size_t layer) override {
    if (layer < dense) return;
    const size_t c = pass.model.dim();
    const size_t last = pass.current / page;
    const size_t count = std::max<size_t>(3, budget / page);
    pass.blocked.assign(pass.model.heads(), Flags(pass.n, 0));
    for (size_t h = 0; h < pass.model.heads(); ++h) {
      Row score(last + 1, 0.0);
      for (size_t p = 0; p <= last; ++p) {
        for (size_t d = 0; d < c; ++d) {
          double low = kInfinity, high = -kInfinity;
          for (size_t j = p * page; j < std::min(pass.current + 1, (p + 1) * page); ++j) {
            low = std::min(low, pass.k[layer][j][h / pass.model.group() * c + d]);
            high = std::max(high, pass.k[layer][j][h / pass.model.group() * c + d]);
          }
          const double q = pass.q[layer][pass.current][h * c + d];
          score[p] += std::max(q * low, q * high);
        }
      }
      Set pages = Best(Range(0, last), score, count - 1, Scale::kSpread, pass);
      pages.push_back(last);
      for (size_t j = 0; j <= pass.current; ++j)
        pass.blocked[h][j] = std::find(pages.begin(), pages.end(), j / page) == pages.end();
    }
  }
};

// Attention of prefill under a pattern that is given.
struct GivenPattern : Method {
  std::function<bool(size_t layer, size_t head, size_t i, size_t j)> sees;
  bool Masked(size_t layer, size_t head, size_t i, size_t j) const override {
    return !sees(layer, head, i, j);
  }
};

}  // namespace coppice::oracle
