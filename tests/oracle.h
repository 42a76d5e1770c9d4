// The oracle: a Llama in fp64 as a textbook writes it, with FTP and SlimInfer from their papers' equations.
//
// Nothing is ever removed. Every layer computes every token, attention is a materialised N x N matrix, and a
// token that SlimInfer drops is masked out of it (weight 0, an infinite negative score) from then on. What a
// dropped token computes is never read by a kept one. Shares no code with the engine but the stored weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "tiny_model.h"

namespace coppice::oracle {

using Row = std::vector<double>;
using Matrix = std::vector<Row>;
using Mask = std::vector<bool>;

struct Ftp {
  double eta;
  int dense, first, queries;
};
struct SlimInfer {
  std::vector<int> layers, keep;
  int block, unit, window;
};

struct Result {
  Matrix logits;                             // [tokens, vocab]
  std::vector<std::vector<int32_t>> cached;  // [layers] prompt positions with a key in this layer
  std::vector<std::vector<int32_t>> ffn;     // [layers] prompt positions that ran the FFN
  double margin = 1e9;  // smallest relative distance of any decision from the other choice
};

class Llama {
 public:
  explicit Llama(const TinyModel& model) : config_(model.config), store_(*model.store) {}

  // `tokens` is a prompt of `prompt` tokens and, after it, tokens that were generated.
  Result Run(const std::vector<int32_t>& tokens, size_t prompt, const std::optional<SlimInfer>& slim,
             const std::optional<Ftp>& ftp) const;

 private:
  Matrix Weight(const std::string& name) const {
    const TensorView view = store_.Find(name)->view;
    Matrix w;
    for (int64_t r = 0; r < view.rows; ++r)
      w.emplace_back(view.Row<float>(r).begin(), view.Row<float>(r).end());
    return w;
  }
  static Matrix Times(const Matrix& x, const Matrix& w) {  // x w^T
    Matrix y(x.size(), Row(w.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      for (size_t o = 0; o < w.size(); ++o)
        y[i][o] = std::inner_product(x[i].begin(), x[i].end(), w[o].begin(), 0.0);
    }
    return y;
  }
  Matrix RmsNorm(const Matrix& x, const std::string& name) const {
    const Row g = Weight(name)[0];
    Matrix y = x;
    for (Row& row : y) {
      const double mean =
          std::inner_product(row.begin(), row.end(), row.begin(), 0.0) / static_cast<double>(row.size());
      for (size_t i = 0; i < row.size(); ++i) row[i] *= g[i] / std::sqrt(mean + config_.norm_eps);
    }
    return y;
  }
  void Rope(Matrix& x) const {
    const int c = config_.shape.head_dim;
    for (size_t p = 0; p < x.size(); ++p) {
      for (size_t head = 0; head < x[p].size(); head += static_cast<size_t>(c)) {
        for (int i = 0; i < c / 2; ++i) {
          const double angle = static_cast<double>(p) * std::pow(config_.rope.base, -2.0 * i / c);
          double& a = x[p][head + static_cast<size_t>(config_.rope.interleaved ? 2 * i : i)];
          double& b = x[p][head + static_cast<size_t>(config_.rope.interleaved ? 2 * i + 1 : i + c / 2)];
          const double rotated = a * std::cos(angle) - b * std::sin(angle);
          b = a * std::sin(angle) + b * std::cos(angle);
          a = rotated;
        }
      }
    }
  }
  // [heads][query][key], causal, without the masked keys.
  std::vector<Matrix> AttentionWeights(const Matrix& q, const Matrix& k, const Mask& alive) const;
  // The prompt tokens that SlimInfer keeps of `rows`.
  std::vector<size_t> Stage(const SlimInfer& slim, size_t stage, const std::vector<size_t>& rows,
                            const Matrix& q, const Matrix& k, Result& result) const;
  // The prompt tokens of `rows` whose FFN runs.
  std::vector<size_t> Chosen(const Ftp& ftp, const std::vector<size_t>& rows,
                             const std::vector<Matrix>& weights, Result& result) const;

  const ModelConfig& config_;
  const TinyStore& store_;
};

inline std::vector<Matrix> Llama::AttentionWeights(const Matrix& q, const Matrix& k,
                                                   const Mask& alive) const {
  const ModelShape& s = config_.shape;
  const size_t n = q.size();
  std::vector<Matrix> weights(static_cast<size_t>(s.heads), Matrix(n, Row(n, 0.0)));
  for (int h = 0; h < s.heads; ++h) {
    const int g = h / (s.heads / s.kv_heads);
    for (size_t i = 0; i < n; ++i) {
      Row& row = weights[static_cast<size_t>(h)][i];
      double largest = -std::numeric_limits<double>::infinity();
      for (size_t j = 0; j < n; ++j) {
        row[j] = -std::numeric_limits<double>::infinity();
        if (j > i || !(alive[j] || j == i)) continue;
        row[j] = std::inner_product(q[i].begin() + h * s.head_dim, q[i].begin() + (h + 1) * s.head_dim,
                                    k[j].begin() + g * s.head_dim, 0.0) /
                 std::sqrt(static_cast<double>(s.head_dim));
        largest = std::max(largest, row[j]);
      }
      double sum = 0;
      for (double& x : row) sum += x = std::exp(x - largest);
      for (double& x : row) x /= sum;
    }
  }
  return weights;
}

inline std::vector<size_t> Llama::Stage(const SlimInfer& slim, size_t stage, const std::vector<size_t>& rows,
                                        const Matrix& q, const Matrix& k, Result& result) const {
  const ModelShape& s = config_.shape;
  const size_t n = rows.size();
  const auto budget = static_cast<size_t>(slim.keep[stage]);
  if (budget >= n) return rows;
  const auto block = static_cast<size_t>(slim.block);
  const auto unit = static_cast<size_t>(slim.unit);
  const size_t blocks = (n + block - 1) / block;
  const size_t window = std::min(n, static_cast<size_t>(slim.window));
  Row r(blocks, -std::numeric_limits<double>::infinity());
  for (size_t u = 0; u * unit < n; ++u) {
    const size_t end = std::min(n, (u + 1) * unit);
    double score = 0;
    for (int h = 0; h < s.heads; ++h) {
      const int g = h / (s.heads / s.kv_heads);
      for (int c = 0; c < s.head_dim; ++c) {
        double mean_q = 0;
        double mean_k = 0;
        for (size_t i = n - window; i < n; ++i) mean_q += q[rows[i]][static_cast<size_t>(h * s.head_dim + c)];
        for (size_t i = u * unit; i < end; ++i) mean_k += k[rows[i]][static_cast<size_t>(g * s.head_dim + c)];
        score +=
            mean_q / static_cast<double>(window) * mean_k / static_cast<double>(end - u * unit) / s.heads;
      }
    }
    r[u * unit / block] = std::max(r[u * unit / block], score);
  }
  std::vector<size_t> order;
  for (size_t j = 1; j + 1 < blocks; ++j) order.push_back(j);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return r[a] > r[b]; });
  const size_t best = budget / block - std::min<size_t>(2, budget / block);
  if (best > 0 && best < order.size()) {
    const double spread = r[order.front()] - r[order.back()];
    result.margin = std::min(result.margin, (r[order[best - 1]] - r[order[best]]) / spread);
  }
  order.resize(std::min(best, order.size()));
  order.push_back(0);
  order.push_back(blocks - 1);
  std::vector<size_t> kept;
  for (size_t i = 0; i < n; ++i) {
    if (std::find(order.begin(), order.end(), i / block) != order.end()) kept.push_back(rows[i]);
  }
  return kept;
}

inline std::vector<size_t> Llama::Chosen(const Ftp& ftp, const std::vector<size_t>& rows,
                                         const std::vector<Matrix>& weights, Result& result) const {
  const size_t n = rows.size();
  const size_t tail = n - std::min(n, static_cast<size_t>(ftp.queries));
  std::vector<size_t> middle, chosen;
  for (size_t i = 0; i < n; ++i) {
    (i < tail && rows[i] >= static_cast<size_t>(ftp.first) ? middle : chosen).push_back(rows[i]);
  }
  Row mass(rows.back() + 1, 0.0);
  double total = 0;
  for (const size_t j : middle) {
    for (const Matrix& head : weights) {
      for (size_t i = tail; i < n; ++i) mass[j] += head[rows[i]][j];
    }
    total += mass[j];
  }
  std::stable_sort(middle.begin(), middle.end(), [&](size_t a, size_t b) { return mass[a] > mass[b]; });
  double sum = 0;
  for (size_t i = 0; i < middle.size(); ++i) {
    chosen.push_back(middle[i]);
    const double before = sum;
    sum += mass[middle[i]];
    if (sum < ftp.eta * total) continue;
    result.margin =
        std::min({result.margin, (sum - ftp.eta * total) / total, (ftp.eta * total - before) / total});
    if (i + 1 < middle.size()) {
      result.margin = std::min(result.margin, 1 - mass[middle[i + 1]] / mass[middle[i]]);
    }
    break;
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

inline Result Llama::Run(const std::vector<int32_t>& tokens, size_t prompt,
                         const std::optional<SlimInfer>& slim, const std::optional<Ftp>& ftp) const {
  const ModelShape& s = config_.shape;
  const size_t n = tokens.size();
  Result result;
  std::vector<size_t> rows(prompt);  // of the prompt, those still in the stream
  std::iota(rows.begin(), rows.end(), size_t{0});
  Mask alive(n, true);
  const Matrix embedding = Weight("token_embd.weight");
  Matrix x;
  for (const int32_t id : tokens) x.push_back(embedding[static_cast<size_t>(id)]);
  for (int l = 0; l < s.layers; ++l) {
    const std::string p = "blk." + std::to_string(l) + ".";
    result.cached.emplace_back(rows.begin(), rows.end());
    const Matrix normed = RmsNorm(x, p + "attn_norm.weight");
    Matrix q = Times(normed, Weight(p + "attn_q.weight"));
    Matrix k = Times(normed, Weight(p + "attn_k.weight"));
    const Matrix v = Times(normed, Weight(p + "attn_v.weight"));
    Rope(q);
    Rope(k);
    const std::vector<Matrix> weights = AttentionWeights(q, k, alive);
    Matrix mixed(n, Row(static_cast<size_t>(s.heads * s.head_dim), 0.0));
    for (int h = 0; h < s.heads; ++h) {
      for (size_t i = 0; i < n; ++i) {
        for (size_t j = 0; j <= i; ++j) {
          for (int c = 0; c < s.head_dim; ++c) {
            mixed[i][static_cast<size_t>(h * s.head_dim + c)] +=
                weights[static_cast<size_t>(h)][i][j] *
                v[j][static_cast<size_t>(h / (s.heads / s.kv_heads) * s.head_dim + c)];
          }
        }
      }
    }
    const Matrix attended = Times(mixed, Weight(p + "attn_output.weight"));
    for (size_t i = 0; i < n; ++i)
      std::transform(x[i].begin(), x[i].end(), attended[i].begin(), x[i].begin(), std::plus<>());

    for (size_t stage = 0; slim && stage < slim->layers.size(); ++stage) {
      if (slim->layers[stage] == l + 1) rows = Stage(*slim, stage, rows, q, k, result);
    }
    std::fill_n(alive.begin(), prompt, false);
    for (const size_t i : rows) alive[i] = true;
    std::vector<size_t> runs = rows;
    if (ftp && l >= ftp->dense && l + 1 < s.layers) runs = Chosen(*ftp, rows, weights, result);
    if (l + 1 == s.layers) runs = {prompt - 1};  // whose output alone is wanted
    result.ffn.emplace_back(runs.begin(), runs.end());
    for (size_t i = prompt; i < n; ++i) runs.push_back(i);

    const Matrix ffn_normed = RmsNorm(x, p + "ffn_norm.weight");
    Matrix gate = Times(ffn_normed, Weight(p + "ffn_gate.weight"));
    const Matrix up = Times(ffn_normed, Weight(p + "ffn_up.weight"));
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < gate[i].size(); ++j)
        gate[i][j] = gate[i][j] / (1 + std::exp(-gate[i][j])) * up[i][j];
    }
    const Matrix down = Times(gate, Weight(p + "ffn_down.weight"));
    for (const size_t i : runs)
      std::transform(x[i].begin(), x[i].end(), down[i].begin(), x[i].begin(), std::plus<>());
  }
  result.logits = Times(RmsNorm(x, "output_norm.weight"), Weight("output.weight"));
  return result;
}

}  // namespace coppice::oracle
