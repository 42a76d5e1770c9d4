// The oracle's methods that drop hidden states token by token, or a token's FFN: LazyLLM, SDTP, static
// pruning, PyramidInfer, UniPrefill, SPTS, FTP. Written from the papers and docs/methods.md, without looking
// at the engine.
#pragma once

#include <cmath>

#include "oracle.h"

namespace coppice::oracle {

inline size_t CeilShare(double share, size_t of) {
  return static_cast<size_t>(std::ceil(share * static_cast<double>(of) - 1e-9));
}

// The `count` best of `items`, those of `always` first and inside the count, by position.
inline Set KeepBest(const Set& items, const Set& always, const Row& score, size_t count, Scale scale,
                    Pass& pass) {
  const Set kept = Both(items, always);
  const size_t rest = count - std::min(count, kept.size());
  return Either(kept, Sorted(Best(Without(items, kept), score, rest, scale, pass)));
}

// LazyLLM: at a stage, keep the share of the prompt's tokens that the last token looks at
// most in the layer before; in each decode step anew, over all of the prompt.
struct LazyLlm : Method {
  std::vector<size_t> at;
  std::vector<double> keep;
  LazyLlm(std::vector<size_t> stages, std::vector<double> shares)
      : at(std::move(stages)), keep(std::move(shares)) {}

  // A of stage s, without generated tokens, which are outside the count.
  virtual Set Select(Pass& pass, size_t s, const Set& always) const {
    Set of_prompt = Both(pass.alive, Range(0, pass.prompt));
    const size_t count = std::max<size_t>(1, CeilShare(keep[s], of_prompt.size()));
    return KeepBest(of_prompt, always, pass.MeanOverHeads(pass.current), count, Scale::kShare, pass);
  }
  int StageAt(size_t layer) const {
    const auto it = std::find(at.begin(), at.end(), layer);
    return it == at.end() ? -1 : static_cast<int>(it - at.begin());
  }
  void BeforeLayer(Pass& pass, size_t layer) override {
    if (StageAt(layer) < 0) return;
    const Set kept = Select(pass, static_cast<size_t>(StageAt(layer)), {pass.prompt - 1});
    pass.Leave(Without(pass.alive, kept), layer, false, true);
  }
  void StepBeforeLayer(Pass& pass, size_t layer) override {
    if (StageAt(layer) < 0) return;
    Set kept = Select(pass, static_cast<size_t>(StageAt(layer)), {});
    kept = Either(kept, Range(pass.prompt, pass.current + 1));
    pass.Leave(Without(pass.runs, kept), layer, false, true);
    pass.alive = kept;
    Set back;
    for (const size_t i : kept) {
      if (pass.depth[i] == layer && !In(pass.runs, i)) back.push_back(i);
    }
    pass.Return(back);
  }
};

// For methods that never bring back what left: a step attends, in each layer, what has a key there.
struct Gone : Method {
  void Keep(Pass& pass, const Set& kept, size_t layer) {
    pass.Leave(Without(pass.alive, kept), layer, false, false);
  }
};

// Static token pruning: the mean over layers 0 .. at - 1 of LazyLLM's score, once.
struct StaticPruning : Gone {
  size_t at;
  double keep;
  StaticPruning(size_t layer, double share) : at(layer), keep(share) {}

  Row sum;
  void BeforeLayer(Pass& pass, size_t layer) override {
    if (layer == 0 || layer > at) return;
    sum.resize(pass.n, 0.0);
    AddTo(sum, pass.MeanOverHeads(pass.prompt - 1));
    if (layer < at) return;
    const size_t count = std::max<size_t>(1, CeilShare(keep, pass.prompt));
    Keep(pass, KeepBest(pass.alive, {pass.prompt - 1}, sum, count, Scale::kShare, pass), layer);
  }
};

// SDTP: score = difference of the two outputs of W2 GELU(W1 LayerNorm(x) + b1) + b2.
struct Predictor {
  Row ln_w, ln_b;
  Matrix fc1_w;  // [h, d]
  Row fc1_b;
  Matrix fc2_w;  // [2, h]
  Row fc2_b;

  double Score(const Row& x) const {
    const auto d = static_cast<double>(x.size());
    const double mean = std::accumulate(x.begin(), x.end(), 0.0) / d;
    double variance = 0;
    for (const double value : x) variance += (value - mean) * (value - mean) / d;
    Row y = x;
    for (size_t i = 0; i < y.size(); ++i)
      y[i] = (y[i] - mean) / std::sqrt(variance + 1e-5) * ln_w[i] + ln_b[i];
    Row hidden = Times(fc1_w, y);
    for (size_t i = 0; i < hidden.size(); ++i) {
      const double z = hidden[i] + fc1_b[i];
      // The tanh form, as the side file's format says.
      hidden[i] = z / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (z + 0.044715 * z * z * z)));
    }
    const Row out = Times(fc2_w, hidden);
    return (out[0] + fc2_b[0]) - (out[1] + fc2_b[1]);
  }
};

struct Sdtp : Gone {
  std::vector<size_t> at;
  std::vector<Predictor> predictors;
  double r, local;
  size_t first;
  Sdtp(std::vector<size_t> stages, std::vector<Predictor> by_stage, double rate, size_t first_tokens,
       double local_share)
      : at(std::move(stages)),
        predictors(std::move(by_stage)),
        r(rate),
        local(local_share),
        first(first_tokens) {}

  void BeforeLayer(Pass& pass, size_t layer) override {
    for (size_t s = 0; s < at.size(); ++s) {
      if (at[s] != layer) continue;
      const auto original = static_cast<double>(pass.prompt);
      const size_t recent = std::max<size_t>(1, CeilShare(local, pass.prompt));
      const Set always = Either(Range(0, first), Range(pass.prompt - recent, pass.prompt));
      const auto budget =
          static_cast<size_t>(std::floor(std::pow(r, static_cast<double>(s + 1)) * original + 0.5));
      Row score(pass.n, 0.0);
      for (const size_t i : pass.alive) score[i] = predictors[s].Score(pass.x[i]);
      Keep(pass, KeepBest(pass.alive, always, score, budget, Scale::kSpread, pass), layer);
    }
  }
};

// PyramidInfer: after each layer, of the context before the recent tokens, the share that the
// recent tokens look at most; later rows of them weigh more.
struct PyramidInfer : Gone {
  double r, recent, weight;
  size_t sink, min_context;
  PyramidInfer(double rate, double recent_share, size_t sinks, double distance_weight, size_t minimum)
      : r(rate), recent(recent_share), weight(distance_weight), sink(sinks), min_context(minimum) {}

  void BeforeLayer(Pass& pass, size_t layer) override {
    if (layer == 0) return;
    const auto tail = static_cast<size_t>(recent * static_cast<double>(pass.prompt)) + 1;
    const Set rows(pass.alive.end() - static_cast<std::ptrdiff_t>(tail), pass.alive.end());
    const Set context = Without(pass.alive, rows);
    const double phase = std::acos(-1.0) * static_cast<double>(layer - 1) / static_cast<double>(pass.layers);
    const double ratio = (1 - r) * (std::cos(phase) + 1) / 2 + r;
    const auto count = static_cast<size_t>(ratio * static_cast<double>(context.size()));
    if (count <= min_context || count >= context.size()) return;
    Row score(pass.n, 0.0);
    for (size_t i = 0; i < tail; ++i) {
      const double step = static_cast<double>(i) / static_cast<double>(tail - 1);
      const Row row = pass.MeanOverHeads(rows[i]);
      for (size_t j = 0; j < pass.n; ++j) score[j] += (1 + (weight - 1) * step) * row[j];
    }
    const Set always(context.begin(), context.begin() + static_cast<std::ptrdiff_t>(sink));
    const Set kept = KeepBest(context, always, score, count, Scale::kShare, pass);
    Keep(pass, Either(kept, rows), layer);
  }
};

// UniPrefill: after the attention of a deciding layer the smallest set of blocks of the rows in the stream
// that holds the share p of what the last rows give to all of them stays, with the first positions and the
// last rows' blocks.
struct UniPrefill : Gone {
  std::vector<size_t> at;
  double p;
  size_t block, sink, last;
  UniPrefill(std::vector<size_t> layers, double share, size_t rows_per_block, size_t sinks, size_t last_rows)
      : at(std::move(layers)), p(share), block(rows_per_block), sink(sinks), last(last_rows) {}

  void AfterAttention(Pass& pass, size_t layer) override {
    const Set rows = pass.alive;
    const size_t n = rows.size();
    if (std::find(at.begin(), at.end(), layer) == at.end() || p >= 1 || n <= sink + last) return;
    Row given((n + block - 1) / block, 0.0);
    double total = 0;
    for (size_t i = n - last; i < n; ++i) {
      const Row row = pass.MeanOverHeads(rows[i]);
      for (size_t j = 0; j < n; ++j) given[j / block] += row[rows[j]];
      for (const size_t j : rows) total += row[j];
    }
    Set order = Range(0, given.size());
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return given[a] > given[b]; });
    double sum = 0;
    Set chosen;
    for (size_t i = 0; i < order.size() && sum < p * total; ++i) {
      const double before = sum;
      sum += given[order[i]];
      chosen.push_back(order[i]);
      if (sum < p * total) continue;
      pass.Clear(std::min(sum - p * total, p * total - before) / total);
      if (i + 1 < order.size()) pass.Clear(1 - given[order[i + 1]] / given[order[i]]);
    }
    Set kept;
    for (size_t j = 0; j < n; ++j) {
      const bool tail = j / block >= (n - last) / block;
      if (tail || rows[j] < sink || std::count(chosen.begin(), chosen.end(), j / block) > 0)
        kept.push_back(rows[j]);
    }
    pass.Leave(Without(rows, kept), layer + 1, true, false);
  }
};

// SPTS's proxy of one FFN: low-rank factors of its three matrices, of some channels.
struct FfnProxy {
  Row norm;                  // [d] of RMSNorm, eps 1e-5
  Matrix gate_in, gate_out;  // [r, d], [channels, r]
  Matrix up_in, up_out;      // the same
  Matrix down;               // [r, channels]; the other factor has orthonormal columns, and changes no length

  double Length(const Row& x) const {
    double square = 0;
    for (const double value : x) square += value * value / static_cast<double>(x.size());
    Row y = x;
    for (size_t i = 0; i < y.size(); ++i) y[i] *= norm[i] / std::sqrt(square + 1e-5);
    Row inner = Times(gate_out, Times(gate_in, y));
    const Row up = Times(up_out, Times(up_in, y));
    for (size_t i = 0; i < inner.size(); ++i) inner[i] = inner[i] / (1 + std::exp(-inner[i])) * up[i];
    double length = 0;
    for (const double value : Times(down, inner)) length += value * value;
    return std::sqrt(length);
  }
};

// SPTS: from layer `begin` on, `keep` of the stage's candidates attend, those that the last token looks at
// most in this very layer, and as many run the FFN, by that score times what the proxy predicts. Behind a
// stage `drop` of the candidates leave, those of smallest score; the next stage's `keep` stay.
struct Spts : Gone {
  size_t begin;
  std::vector<size_t> ends, keep, drop;
  std::map<size_t, FfnProxy> proxies;  // by layer; none: the attention alone chooses
  Spts(size_t first, std::vector<size_t> last_layers, std::vector<size_t> budgets, std::vector<size_t> gone,
       std::map<size_t, FfnProxy> by_layer)
      : begin(first),
        ends(std::move(last_layers)),
        keep(std::move(budgets)),
        drop(std::move(gone)),
        proxies(std::move(by_layer)) {}

  Row score;
  size_t Budget(size_t layer) const {
    size_t stage = 0;
    while (stage < ends.size() && layer > ends[stage]) ++stage;
    return keep[std::min(stage, keep.size() - 1)];
  }
  void BeforeLayer(Pass& pass, size_t layer) override {
    for (size_t s = 0; s < ends.size(); ++s) {
      const size_t rows = pass.alive.size();
      const size_t least = keep[std::min(s + 1, keep.size() - 1)];
      if (layer != ends[s] + 1 || rows <= least) continue;
      const size_t stays = std::max(rows - std::min(rows, drop[s]), least);
      Keep(pass, KeepBest(pass.alive, {pass.prompt - 1}, score, stays, Scale::kShare, pass), layer);
    }
  }
  void ChooseAttending(Pass& pass, size_t layer) override {
    if (layer < begin) return;
    score = pass.Probe(layer, pass.prompt - 1);
    if (pass.alive.size() <= Budget(layer)) return;
    pass.attending = KeepBest(pass.alive, {pass.prompt - 1}, score, Budget(layer), Scale::kShare, pass);
  }
  void ChooseFfn(Pass& pass, size_t layer) override {
    if (layer < begin || pass.alive.size() <= Budget(layer)) return;
    Row both = score;
    for (const size_t i : pass.alive) {
      if (!proxies.empty()) both[i] *= proxies.at(layer).Length(pass.x[i]);
    }
    pass.runs = KeepBest(pass.alive, {pass.prompt - 1}, both, Budget(layer), Scale::kShare, pass);
  }
};

// FTP: after the attention of a layer, only the smallest set of middle tokens that holds the
// share eta of what the last queries give to the middle runs the FFN, with the first and the last tokens.
struct Ftp : Method {
  double eta;
  size_t dense, first, queries;
  Ftp(double share, size_t dense_layers, size_t first_tokens, size_t last)
      : eta(share), dense(dense_layers), first(first_tokens), queries(last) {}

  void ChooseFfn(Pass& pass, size_t layer) override {
    if (layer < dense || layer + 1 == pass.layers || eta >= 1) return;
    const Set rows = pass.runs;
    const size_t tail = rows.size() - std::min(rows.size(), queries);
    Set middle, chosen;
    for (size_t i = 0; i < rows.size(); ++i)
      (i < tail && rows[i] >= first ? middle : chosen).push_back(rows[i]);
    Row mass(pass.n, 0.0);
    for (size_t i = tail; i < rows.size(); ++i) {
      for (size_t h = 0; h < pass.model.heads(); ++h) AddTo(mass, pass.Weights(h, rows[i]));
    }
    double total = 0;
    for (const size_t j : middle) total += mass[j];
    std::stable_sort(middle.begin(), middle.end(), [&](size_t a, size_t b) { return mass[a] > mass[b]; });
    double sum = 0;
    for (size_t i = 0; i < middle.size(); ++i) {
      chosen.push_back(middle[i]);
      const double before = sum;
      sum += mass[middle[i]];
      if (sum < eta * total) continue;
      pass.Clear(std::min(sum - eta * total, eta * total - before) / total);
      if (i + 1 < middle.size()) pass.Clear(1 - mass[middle[i + 1]] / mass[middle[i]]);
      break;
    }
    pass.runs = Sorted(chosen);
  }
};

}  // namespace coppice::oracle
