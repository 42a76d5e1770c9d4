// The oracle's SlimInfer: its prefill and its decode steps, from the paper and docs/methods.md.
#pragma once

#include "oracle.h"

namespace coppice::oracle {

struct SlimInfer : Method {
  struct Options {
    std::vector<size_t> layers, keep;
    std::vector<size_t> decode_keep = {};  // empty: as `keep`
    size_t block, unit, window;
    size_t last = 1;  // so many last tokens stay, with the blocks that hold them
    double gamma = 0.9;
    bool revive = false;
    size_t revive_cap = 4;
    bool largest_keys = false;  // a unit's key is the maximum by channel, not the mean
  };
  Options o;
  explicit SlimInfer(Options options) : o(std::move(options)) {}

  std::vector<Set> active;  // [stages] blocks
  int64_t swaps = 0;

  Set Tokens(const Pass& pass, const Set& blocks) const {
    Set tokens;
    for (const size_t j : blocks) {
      for (size_t i = j * o.block; i < std::min(pass.prompt, (j + 1) * o.block); ++i) tokens.push_back(i);
    }
    return tokens;
  }
  Set Blocks(const Set& tokens) const {
    Set blocks;
    for (const size_t i : tokens) {
      if (blocks.empty() || blocks.back() != i / o.block) blocks.push_back(i / o.block);
    }
    return blocks;
  }
  size_t LastBlock(const Pass& pass) const { return (pass.prompt - 1) / o.block; }
  // Block 0, and the blocks of the last tokens: those that are kept for the question, those that score.
  Set Always(const Pass& pass) const {
    const size_t tail = std::min(pass.prompt, std::max(o.last, o.window));
    return Either({0}, Blocks(Range(pass.prompt - tail, pass.prompt)));
  }
  // Blocks of a budget, apart from those that always stay.
  size_t Room(const Pass& pass, size_t budget) const {
    return budget / o.block - std::min(Always(pass).size(), budget / o.block);
  }

  // r(j) = max over units of mean over heads of (mean of the last w queries) . (mean key of a unit), for the
  // blocks named; the last w queries of all tokens so far.
  Row Scores(const Pass& pass, size_t layer, const Set& blocks, const Set& queries) const {
    const size_t c = pass.model.dim();
    const size_t w = std::min(o.window, queries.size());
    Row r(LastBlock(pass) + 1, -kInfinity);
    for (const size_t j : blocks) {
      const size_t end = std::min(pass.prompt, (j + 1) * o.block);
      for (size_t u = j * o.block; u < end; u += o.unit) {
        const size_t unit_end = std::min(end, u + o.unit);
        double score = 0;
        for (size_t h = 0; h < pass.model.heads(); ++h) {
          for (size_t d = 0; d < c; ++d) {
            double mean_q = 0;
            double mean_k = 0;
            for (size_t i = queries.size() - w; i < queries.size(); ++i)
              mean_q += pass.q[layer][queries[i]][h * c + d] / static_cast<double>(w);
            double largest_k = -kInfinity;
            for (size_t i = u; i < unit_end; ++i) {
              const double key = pass.k[layer][i][h / pass.model.group() * c + d];
              mean_k += key / static_cast<double>(unit_end - u);
              largest_k = std::max(largest_k, key);
            }
            score += mean_q * (o.largest_keys ? largest_k : mean_k) / static_cast<double>(pass.model.heads());
          }
        }
        r[j] = std::max(r[j], score);
      }
    }
    return r;
  }

  void AfterAttention(Pass& pass, size_t layer) override {
    for (size_t s = 0; s < o.layers.size(); ++s) {
      if (o.layers[s] != layer + 1) continue;
      const Set blocks = Blocks(pass.alive);
      active.push_back(blocks);
      if (o.keep[s] >= pass.alive.size()) continue;
      const Row r = Scores(pass, layer, blocks, pass.alive);
      const Set always = Always(pass);
      const auto best = Best(Without(blocks, always), r, Room(pass, o.keep[s]), Scale::kSpread, pass);
      active[s] = Either(always, Sorted(best));
      pass.Leave(Without(pass.alive, Tokens(pass, active[s])), layer + 1, true, o.revive);
    }
  }

  // What a step may attend: the blocks with keys in the layers that follow, and those that are parked just
  // here.
  struct Offer {
    Set with_keys, parked;
    Row r;
    size_t room;  // blocks of the budget, apart from those that always stay
  };
  Offer Offered(const Pass& pass, size_t s, size_t layer) const {
    Offer offer;
    for (size_t j = 0; j <= LastBlock(pass); ++j) {
      const size_t i = j * o.block;
      if (pass.Has(layer + 1, i)) {
        offer.with_keys.push_back(j);
      } else if (o.revive && pass.Has(layer, i)) {  // parked here, or in the running batch and just come here
        offer.parked.push_back(j);
      }
    }
    offer.r = Scores(pass, layer, Either(offer.with_keys, offer.parked), Range(0, pass.current + 1));
    offer.room = Room(pass, (o.decode_keep.empty() ? o.keep : o.decode_keep)[s]);
    return offer;
  }
  // The blocks that a step wants, whether they have keys or not.
  Set Wanted(Pass& pass, const Offer& offer) const {
    const Set rivals = Without(Either(offer.with_keys, offer.parked), Always(pass));
    return Either(Always(pass), Sorted(Best(rivals, offer.r, offer.room, Scale::kSpread, pass)));
  }

  // The same where no more than `revive_cap` parked blocks may be computed: the best of them compete with all
  // that have keys.
  Set Affordable(Pass& pass, const Offer& offer) const {
    auto best_parked = offer.parked;
    std::stable_sort(best_parked.begin(), best_parked.end(),
                     [&](size_t a, size_t b) { return offer.r[a] > offer.r[b]; });
    best_parked.resize(std::min(best_parked.size(), o.revive_cap));
    const Set rivals = Either(Without(offer.with_keys, Always(pass)), Sorted(best_parked));
    const Set chosen = Sorted(Best(rivals, offer.r, offer.room, Scale::kSpread, pass));
    // The cap's own cut decides something only where the last block before it is chosen.
    const Set cut = Without(offer.parked, Sorted(best_parked));
    if (!cut.empty() && !best_parked.empty() && In(chosen, best_parked.back())) {
      double behind = -kInfinity;
      for (const size_t j : cut) behind = std::max(behind, offer.r[j]);
      double low = kInfinity, high = -kInfinity;
      for (const size_t j : Either(offer.with_keys, offer.parked)) {
        low = std::min(low, offer.r[j]);
        high = std::max(high, offer.r[j]);
      }
      pass.Clear((offer.r[best_parked.back()] - behind) / (high - low));
    }
    return Either(Always(pass), chosen);
  }

  void StepAfterAttention(Pass& pass, size_t layer) override {
    for (size_t s = 0; s < o.layers.size(); ++s) {
      if (o.layers[s] != layer + 1) continue;
      const Offer offer = Offered(pass, s, layer);
      const Set cand = Wanted(pass, offer);
      const size_t common = Both(cand, active[s]).size();
      // gamma = 0.9 means 9 / 10: compared in integers. An active set above the budget is never kept (T-SL4).
      const auto millionths = static_cast<size_t>(std::llround(o.gamma * 1e6));
      const bool swap = common * 1000000 < millionths * cand.size() || active[s].size() > cand.size();
      if (swap) {
        active[s] = Affordable(pass, offer);
        ++swaps;
      }
      const Set wanted = Either(Tokens(pass, active[s]), Range(pass.prompt, pass.current + 1));
      pass.Leave(Without(pass.runs, wanted), layer + 1, true, true);
      pass.alive = wanted;
      Set back;
      for (const size_t i : wanted) {
        if (pass.depth[i] == layer + 1 && !In(pass.runs, i)) back.push_back(i);
      }
      pass.Return(back);
    }
  }
};

}  // namespace coppice::oracle
