// A Llama in fp64, token by token, as a textbook writes it. Shares no code with the engine but the stored
// weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "tiny_model.h"

namespace coppice::oracle {

using Row = std::vector<double>;
using Matrix = std::vector<Row>;
using Set = std::vector<size_t>;  // of positions, ascending
using Flags = std::vector<char>;

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

inline Set Range(size_t begin, size_t end) {
  Set set(end - begin);
  std::iota(set.begin(), set.end(), begin);
  return set;
}
inline bool In(const Set& set, size_t i) { return std::binary_search(set.begin(), set.end(), i); }
inline Set Sorted(Set set) {
  std::sort(set.begin(), set.end());
  return set;
}
inline Set Without(const Set& set, const Set& other) {
  Set rest;
  std::set_difference(set.begin(), set.end(), other.begin(), other.end(), std::back_inserter(rest));
  return rest;
}
inline Set Both(const Set& a, const Set& b) {
  Set both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}
inline Set Either(const Set& a, const Set& b) {
  Set either;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(either));
  return either;
}
inline double Dot(const Row& a, const Row& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}
inline void AddTo(Row& a, const Row& b) {
  std::transform(a.begin(), a.end(), b.begin(), a.begin(), std::plus<>());
}
inline Row Times(const Matrix& w, const Row& x) {  // w x
  Row y;
  for (const Row& row : w) y.push_back(Dot(row, x));
  return y;
}

struct LayerWeights {
  Row attn_norm, ffn_norm;
  Matrix q, k, v, output, gate, up, down;
};

// The weights in fp64, and what a layer does to one token.
class Llama {
 public:
  explicit Llama(const TinyModel& model) : config(model.config) {
    const auto weight = [&](const std::string& name) {
      const TensorView view = model.store->Find(name)->view;
      Matrix w;
      for (int64_t r = 0; r < view.rows; ++r)
        w.emplace_back(view.Row<float>(r).begin(), view.Row<float>(r).end());
      return w;
    };
    embedding = weight("token_embd.weight");
    output_norm = weight("output_norm.weight")[0];
    output = weight("output.weight");
    for (int l = 0; l < config.shape.layer_count(); ++l) {
      const std::string p = "blk." + std::to_string(l) + ".";
      layers.push_back({.attn_norm = weight(p + "attn_norm.weight")[0],
                        .ffn_norm = weight(p + "ffn_norm.weight")[0],
                        .q = weight(p + "attn_q.weight"),
                        .k = weight(p + "attn_k.weight"),
                        .v = weight(p + "attn_v.weight"),
                        .output = weight(p + "attn_output.weight"),
                        .gate = weight(p + "ffn_gate.weight"),
                        .up = weight(p + "ffn_up.weight"),
                        .down = weight(p + "ffn_down.weight")});
    }
  }

  size_t heads() const { return static_cast<size_t>(config.shape.layer(0).heads); }
  size_t kv_heads() const { return static_cast<size_t>(config.shape.layer(0).kv_heads); }
  size_t group() const { return heads() / kv_heads(); }
  size_t dim() const { return static_cast<size_t>(config.shape.layer(0).head_dim); }

  Row Norm(const Row& x, const Row& g) const {
    const double scale = 1 / std::sqrt(Dot(x, x) / static_cast<double>(x.size()) + config.norm_eps);
    Row y = x;
    for (size_t i = 0; i < y.size(); ++i) y[i] *= g[i] * scale;
    return y;
  }
  Row Rope(Row x, double place) const {
    const size_t c = dim();
    for (size_t i = 0; i < c / 2; ++i) {
      const double angle = place * std::pow(static_cast<double>(config.ropes.front().base),
                                            -2.0 * static_cast<double>(i) / static_cast<double>(c));
      const double cosine = std::cos(angle);
      const double sine = std::sin(angle);
      for (size_t head = 0; head < x.size(); head += c) {
        double& a = x[head + (config.ropes.front().interleaved ? 2 * i : i)];
        double& b = x[head + (config.ropes.front().interleaved ? 2 * i + 1 : i + c / 2)];
        const double rotated = a * cosine - b * sine;
        b = a * sine + b * cosine;
        a = rotated;
      }
    }
    return x;
  }
  Row Ffn(const LayerWeights& w, const Row& x) const {
    const Row normed = Norm(x, w.ffn_norm);
    Row gate = Times(w.gate, normed);
    const Row up = Times(w.up, normed);
    for (size_t j = 0; j < gate.size(); ++j) gate[j] = gate[j] / (1 + std::exp(-gate[j])) * up[j];
    return Times(w.down, gate);
  }
  Row Logits(const Row& x) const { return Times(output, Norm(x, output_norm)); }

  ModelConfig config;
  Matrix embedding, output;
  Row output_norm;
  std::vector<LayerWeights> layers;
};

}  // namespace coppice::oracle
