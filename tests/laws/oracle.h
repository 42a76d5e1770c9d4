// The oracle: a Llama in fp64 as a textbook writes it, and a method as the explicit masks that it puts on it.
//
// Nothing is ever removed. In prefill every layer computes every token, attention is a materialised N x N
// matrix per head, and a token that a method drops is masked out of it (weight 0, a score of minus infinity)
// from then on; what a dropped token computes is never read by a kept one. In decode the keys that a step
// does not attend are masked in the same way. Each key and value is written once: a token that comes back is
// computed from the state that it had when it left. Shares no code with the engine.
//
// Methods are in oracle_tokens.h (LazyLLM, SDTP, FTP, static pruning, PyramidInfer, UniPrefill, SPTS),
// oracle_sliminfer.h and oracle_cache.h (H2O, SnapKV, FastKV, StreamingLLM, Quest, a given pattern).
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"
#include "oracle_model.h"

namespace coppice::oracle {

// What one decode step did.
struct Step {
  // [layers][1 or heads] positions that the current token attends, itself among them; one list where all
  // heads attend the same.
  std::vector<std::vector<Set>> attended;
  std::vector<std::pair<size_t, size_t>> revived;  // (layer, position), ascending: keys computed late
  std::vector<size_t> depth;                       // [tokens so far] layers that have its key
  Set parked;                                      // positions in Aux after the step
};

struct Result {
  Matrix logits;              // of the prompt's end, then of each generated token
  std::vector<Set> cached;    // [layers] prompt positions with a key after prefill
  std::vector<Set> ffn;       // [layers] prompt positions that ran the FFN in prefill
  std::vector<size_t> depth;  // [prompt] after prefill
  Set parked;                 // positions in Aux after prefill
  std::vector<Step> steps;
  // [layers][kv_heads] positions that an evicting method left, after the last step; else those with keys.
  std::vector<std::vector<Set>> left;
  double margin = kInfinity;  // smallest relative distance of any decision from the other choice
};

class Method;

// One prompt and what is generated after it, passed through the layers under methods.
class Pass {
 public:
  Pass(const Llama& model, std::vector<int32_t> tokens, size_t prompt, std::vector<Method*> methods);
  Result Run();

  // Prefill: `gone` leave the stream, from the FFN of layer `depth` - 1 on if it is owed, or from layer
  // `depth` on. Where `park`, their states are kept. Decode: they leave the running batch.
  void Leave(const Set& gone, size_t depth, bool ffn_owed, bool park);
  // Decode: tokens that left come back with the states they left with.
  void Return(const Set& back);
  // The distance of a decision from the other choice.
  void Clear(double margin) { result.margin = std::min(result.margin, margin); }

  // Softmax weights that query i gives to each key, by query head: what `Attend` of this layer computed.
  const Row& Weights(size_t head, size_t i) const { return weights[head][i]; }
  // s_j = mean over heads of the weight that query i gives to key j.
  Row MeanOverHeads(size_t i) const {
    Row mean(n, 0.0);
    for (const Matrix& head : weights) AddTo(mean, head[i]);
    for (double& w : mean) w /= static_cast<double>(weights.size());
    return mean;
  }
  // The same of all tokens in the stream, before the attention of `layer` runs. Prefill.
  Row Probe(size_t layer, size_t i) {
    attending = alive;
    for (size_t h = 0; h < model.heads(); ++h) Look(layer, h, i, false, {});
    return MeanOverHeads(i);
  }
  // A token has its key in this layer.
  bool Has(size_t layer, size_t i) const { return depth[i] > layer; }

  const Llama& model;
  const std::vector<int32_t> tokens;
  const size_t prompt;
  const size_t n, layers;

  Matrix x;                          // [n] the residual stream
  std::vector<Matrix> q, k, v;       // [layers][n][..] after RoPE at the token's position
  std::vector<Matrix> raw_q, raw_k;  // before it
  std::vector<Matrix> weights;       // [heads][n][n] of the current layer
  Set alive;                         // prefill: in the stream. Decode: attended by the current token
  Set attending;                     // prefill: attend in this layer, and are seen by those that do
  Set runs;                          // prefill: run the current FFN. Decode: the running batch
  size_t current = 0;                // the current token; prefill: the last of the prompt
  std::vector<size_t> depth;         // [n]
  struct Parked {
    size_t depth;
    bool ffn_owed;
    Row x;
  };
  std::map<size_t, Parked> parked;          // by position
  std::vector<std::vector<Flags>> evicted;  // [layers][kv_heads][n]
  std::vector<Flags> blocked;               // [heads][n] the current token does not look there, this layer
  std::vector<double> place;  // [n] where RoPE puts a token this step; its position but for slots
  bool append = true;         // tokens that return see all that is attended, else what is before
  Result result;

 private:
  void Project(size_t layer, const Set& rows);
  // x += W_o softmax(q k / sqrt c) v for `rows`; in prefill a query sees `attending` and itself.
  void Attend(size_t layer, const Set& rows, bool decode);
  // The weights of query i in one head; `moved`: keys that RoPE puts elsewhere than at their positions.
  const Row& Look(size_t layer, size_t head, size_t i, bool decode, const std::map<size_t, Row>& moved);
  bool Sees(size_t layer, size_t head, size_t i, size_t j, bool decode) const;
  void Ffn(size_t layer, const Set& rows);
  void Prefill();
  void Decode();
  void NoteAttended(size_t layer, Step& step) const;

  std::vector<Method*> methods_;
};

// Where a method acts. Defaults do nothing.
class Method {
 public:
  virtual ~Method() = default;
  // Prefill.
  virtual void BeforeLayer(Pass&, size_t /*layer*/) {}      // may call Leave; sees the weights of layer - 1
  virtual void ChooseAttending(Pass&, size_t /*layer*/) {}  // narrows `attending`; may call Probe
  virtual void AfterAttention(Pass&, size_t /*layer*/) {}   // may call Leave
  virtual void ChooseFfn(Pass&, size_t /*layer*/) {}        // narrows `runs`
  virtual bool Masked(size_t /*layer*/, size_t /*head*/, size_t /*i*/, size_t /*j*/) const { return false; }
  // Both phases: marks `evicted` after the layer's attention.
  virtual void Evict(Pass&, size_t /*layer*/) {}
  // Decode: narrows `alive` (of every step all tokens so far), calls Leave and Return.
  virtual void StepBegins(Pass&) {}
  virtual void StepBeforeLayer(Pass&, size_t /*layer*/) {}
  virtual void StepBeforeAttention(Pass&, size_t /*layer*/) {}  // may set `blocked`
  virtual void StepAfterAttention(Pass&, size_t /*layer*/) {}
};

inline Pass::Pass(const Llama& m, std::vector<int32_t> t, size_t prompt_tokens, std::vector<Method*> methods)
    : model(m),
      tokens(std::move(t)),
      prompt(prompt_tokens),
      n(tokens.size()),
      layers(m.layers.size()),
      q(layers, Matrix(n)),
      k(q),
      v(q),
      raw_q(q),
      raw_k(q),
      weights(m.heads(), Matrix(n, Row(n, 0.0))),
      depth(n, 0),
      evicted(layers, std::vector<Flags>(m.kv_heads(), Flags(n, 0))),
      place(n),
      methods_(std::move(methods)) {
  COPPICE_CHECK(prompt > 0 && prompt <= n);
  for (const int32_t id : tokens) x.push_back(model.embedding[static_cast<size_t>(id)]);
  std::iota(place.begin(), place.end(), 0.0);
}

inline void Pass::Leave(const Set& gone, size_t at, bool ffn_owed, bool park) {
  for (const size_t i : gone) {
    if (park && !parked.contains(i)) parked[i] = {at, ffn_owed, x[i]};
  }
  alive = Without(alive, gone);
  runs = Without(runs, gone);
}

inline void Pass::Return(const Set& back) {
  for (const size_t i : back) {
    x[i] = parked.at(i).x;
    parked.erase(i);
  }
  runs = Either(runs, back);
}

inline void Pass::Project(size_t layer, const Set& rows) {
  const LayerWeights& w = model.layers[layer];
  for (const size_t i : rows) {
    const Row normed = model.Norm(x[i], w.attn_norm);
    raw_q[layer][i] = Times(w.q, normed);
    raw_k[layer][i] = Times(w.k, normed);
    v[layer][i] = Times(w.v, normed);
    q[layer][i] = model.Rope(raw_q[layer][i], static_cast<double>(i));
    k[layer][i] = model.Rope(raw_k[layer][i], static_cast<double>(i));
  }
}

inline bool Pass::Sees(size_t layer, size_t head, size_t i, size_t j, bool decode) const {
  if (decode) {
    const bool attended = In(alive, j) && Has(layer, j) && !evicted[layer][head / model.group()][j];
    if (i == current) return attended && (blocked.empty() || !blocked[head][j]);
    return attended && (append || j <= i);
  }
  if (j > i) return false;
  for (const Method* method : methods_) {
    if (method->Masked(layer, head, i, j)) return false;
  }
  return j == i || In(attending, j);
}

inline const Row& Pass::Look(size_t layer, size_t h, size_t i, bool decode,
                             const std::map<size_t, Row>& moved) {
  const size_t c = model.dim();
  const Row query = place[i] == static_cast<double>(i) ? q[layer][i] : model.Rope(raw_q[layer][i], place[i]);
  Row& row = weights[h][i];
  const size_t from = h / model.group() * c;
  double largest = -kInfinity;
  for (size_t j = 0; j < n; ++j) {
    row[j] = -kInfinity;
    if (!Sees(layer, h, i, j, decode)) continue;
    const auto it = moved.find(j);
    const Row& key = it == moved.end() ? k[layer][j] : it->second;
    double score = 0;
    for (size_t d = 0; d < c; ++d) score += query[h * c + d] * key[from + d];
    row[j] = score / std::sqrt(static_cast<double>(c));
    largest = std::max(largest, row[j]);
  }
  double sum = 0;
  for (double& w : row) sum += w = std::exp(w - largest);
  for (double& w : row) w /= sum;
  return row;
}

inline void Pass::Attend(size_t layer, const Set& rows, bool decode) {
  const size_t c = model.dim();
  std::map<size_t, Row> moved;  // keys that RoPE puts elsewhere than at their positions
  for (size_t j = 0; j < n && decode; ++j) {
    if (Has(layer, j) && place[j] != static_cast<double>(j)) moved[j] = model.Rope(raw_k[layer][j], place[j]);
  }
  for (const size_t i : rows) {
    Row mixed(model.heads() * c, 0.0);
    for (size_t h = 0; h < model.heads(); ++h) {
      const Row& row = Look(layer, h, i, decode, moved);
      const size_t from = h / model.group() * c;
      for (size_t j = 0; j < n; ++j) {
        for (size_t d = 0; d < c && row[j] > 0; ++d) mixed[h * c + d] += row[j] * v[layer][j][from + d];
      }
    }
    AddTo(x[i], Times(model.layers[layer].output, mixed));
  }
}

inline void Pass::Ffn(size_t layer, const Set& rows) {
  for (const size_t i : rows) AddTo(x[i], model.Ffn(model.layers[layer], x[i]));
}

inline void Pass::Prefill() {
  const Set all = Range(0, prompt);
  alive = all;
  current = prompt - 1;
  for (size_t l = 0; l < layers; ++l) {
    for (Method* method : methods_) method->BeforeLayer(*this, l);
    for (const size_t i : alive) depth[i] = l + 1;
    Project(l, all);
    attending = alive;
    for (Method* method : methods_) method->ChooseAttending(*this, l);
    result.cached.push_back(attending);
    const Set skipped = Without(alive, attending);
    for (Flags& gone : evicted[l]) {
      for (const size_t i : skipped) gone[i] = 1;  // no key in this layer's cache
    }
    Attend(l, Without(all, skipped), false);
    for (Method* method : methods_) method->Evict(*this, l);
    for (Method* method : methods_) method->AfterAttention(*this, l);
    runs = alive;
    for (Method* method : methods_) method->ChooseFfn(*this, l);
    if (l + 1 == layers) runs = {prompt - 1};  // whose output alone is wanted
    result.ffn.push_back(runs);
    Ffn(l, runs);
  }
  runs.clear();
  result.depth.assign(depth.begin(), depth.begin() + static_cast<std::ptrdiff_t>(prompt));
  for (const auto& [i, state] : parked) result.parked.push_back(i);
  result.logits.push_back(model.Logits(x[prompt - 1]));
}

inline void Pass::NoteAttended(size_t layer, Step& step) const {
  std::vector<Set> lists;
  for (size_t h = 0; h < model.heads(); ++h) {
    Set set;
    for (size_t j = 0; j <= current; ++j) {
      if (Sees(layer, h, current, j, true)) set.push_back(j);
    }
    lists.push_back(std::move(set));
  }
  if (std::all_of(lists.begin(), lists.end(), [&](const Set& set) { return set == lists[0]; }))
    lists.resize(1);
  step.attended.push_back(std::move(lists));
}

inline void Pass::Decode() {
  for (current = prompt; current < n; ++current) {
    Step step;
    alive = Range(0, current + 1);
    runs = {current};
    for (Method* method : methods_) method->StepBegins(*this);
    for (size_t l = 0; l < layers; ++l) {
      for (Method* method : methods_) method->StepBeforeLayer(*this, l);
      for (const size_t i : runs) {
        COPPICE_CHECK(depth[i] == l);  // each token once per layer, and no layer left out
        depth[i] = l + 1;
        if (i != current) step.revived.emplace_back(l, i);
      }
      Project(l, runs);
      blocked.clear();
      for (Method* method : methods_) method->StepBeforeAttention(*this, l);
      NoteAttended(l, step);
      Attend(l, runs, true);
      for (Method* method : methods_) method->Evict(*this, l);
      for (Method* method : methods_) method->StepAfterAttention(*this, l);
      Ffn(l, runs);
    }
    for (const auto& [i, state] : parked) step.parked.push_back(i);
    step.depth.assign(depth.begin(), depth.begin() + static_cast<std::ptrdiff_t>(current + 1));
    result.steps.push_back(std::move(step));
    result.logits.push_back(model.Logits(x[current]));
  }
}

inline Result Pass::Run() {
  Prefill();
  Decode();
  for (size_t l = 0; l < layers; ++l) {
    std::vector<Set> heads(model.kv_heads());
    for (size_t g = 0; g < heads.size(); ++g) {
      for (size_t j = 0; j < n; ++j) {
        if (Has(l, j) && !evicted[l][g][j]) heads[g].push_back(j);
      }
    }
    result.left.push_back(std::move(heads));
  }
  return std::move(result);
}

// The `count` first of `items` by (score descending, position ascending), in that order. Notes how clear the
// choice was: the step of the score at the cut, as a share of the last score inside (kShare: weights, where
// an error of a product is an error of a share) or of the spread of all (kSpread).
enum class Scale { kShare, kSpread };
inline std::vector<size_t> Best(std::vector<size_t> items, const Row& score, size_t count, Scale scale,
                                Pass& pass) {
  std::sort(items.begin(), items.end());
  std::stable_sort(items.begin(), items.end(), [&](size_t a, size_t b) { return score[a] > score[b]; });
  if (count > 0 && count < items.size()) {
    const double inside = score[items[count - 1]];
    const double whole = scale == Scale::kShare ? inside : score[items.front()] - score[items.back()];
    pass.Clear((inside - score[items[count]]) / whole);
  }
  items.resize(std::min(count, items.size()));
  return items;
}

}  // namespace coppice::oracle
