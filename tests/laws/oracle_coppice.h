// The oracle's coppice: written from the equations in docs/methods.md, without looking at the engine.
#pragma once

#include <cmath>
#include <numeric>

#include "oracle.h"
#include "tensor/token_set.h"

namespace coppice::oracle {

struct Coppice : Method {
  struct Stage {
    size_t layer;
    double keep;
    size_t queries;
    bool strongest;  // the maximum over heads and queries, else their sum
    size_t widen;
    bool of_question;  // the question's queries, moved to the prompt's end
    double mass = 1;   // share of the widened scores that stays
  };
  struct Settings {
    std::vector<Stage> stages;
    size_t skip_sink = 4, sink = 4, floor = 0, last = 8;
    double revive_mass = 0;
    size_t revive_cap = 16;
    PositionSpan question = {};
  };
  explicit Coppice(Settings settings) : set(std::move(settings)) {}
  Settings set;

  // softmax over the keys of `alive` from skip_sink on that a query at `place` sees, times its share of 1.
  Row Weights(const Pass& pass, size_t layer, const Row& raw, size_t head, double place) const {
    const size_t c = pass.model.dim();
    const Row query = pass.model.Rope(raw, place);
    Row row(pass.n, 0.0);
    double sum = 0;
    for (const size_t j : pass.alive) {
      if (j < set.skip_sink || static_cast<double>(j) > place) continue;
      double score = 0;
      for (size_t d = 0; d < c; ++d)
        score += query[head * c + d] * pass.k[layer][j][head / pass.model.group() * c + d];
      row[j] = std::exp(score / std::sqrt(static_cast<double>(c)));
      sum += row[j];
    }
    for (double& w : row) w /= sum;
    return row;
  }

  // The score s of every position: the attention that these queries give it in this layer, over all heads.
  Row Scores(const Pass& pass, size_t layer, const Set& queries, double shift, bool strongest) const {
    Row s(pass.n, 0.0);
    for (const size_t i : queries) {
      for (size_t h = 0; h < pass.model.heads(); ++h) {
        const Row row = Weights(pass, layer, pass.raw_q[layer][i], h, static_cast<double>(i) + shift);
        for (size_t j = 0; j < pass.n; ++j) s[j] = strongest ? std::max(s[j], row[j]) : s[j] + row[j];
      }
    }
    return s;
  }

  static Row Widened(const Pass& pass, const Row& s, size_t widen) {
    Row w(pass.n, 0.0);
    for (const size_t i : pass.alive) {
      for (const size_t j : pass.alive) {
        if (std::max(i, j) - std::min(i, j) <= widen) w[i] = std::max(w[i], s[j]);
      }
    }
    return w;
  }

  // As Best, but neighbours share one score: equal ones are no close decision, only different ones near
  // the cut are.
  static Set BestOf(Set items, const Row& score, size_t count, Pass& pass) {
    std::stable_sort(items.begin(), items.end(), [&](size_t a, size_t b) { return score[a] > score[b]; });
    if (count > 0 && count < items.size()) {
      const double cut = score[items[count - 1]];
      for (const size_t i : items) {
        if (score[i] != cut) pass.Clear(std::abs(score[i] - cut) / cut);
      }
    }
    items.resize(std::min(count, items.size()));
    return Sorted(items);
  }

  // The number of best `items` that together hold `mass` of their scores.
  static size_t Holding(const Set& items, const Row& score, double mass, Pass& pass) {
    std::vector<double> best;
    for (const size_t i : items) best.push_back(score[i]);
    std::sort(best.rbegin(), best.rend());
    const double all = std::accumulate(best.begin(), best.end(), 0.0);
    double held = 0;
    size_t count = 0;
    while (count < best.size() && (mass >= 1 || held < mass * all)) {
      held += best[count++];
      if (mass < 1) pass.Clear(std::abs(held / all - mass));
    }
    return count;
  }

  static Set LastOf(const Set& items, size_t count) {
    return {items.end() - static_cast<std::ptrdiff_t>(std::min(count, items.size())), items.end()};
  }
  Set QuestionRows(const Pass& pass) const {
    return Both(pass.alive,
                Range(static_cast<size_t>(set.question.begin), static_cast<size_t>(set.question.end)));
  }

  void BeforeLayer(Pass& pass, size_t layer) override {
    for (const Stage& stage : set.stages) {
      if (stage.layer != layer) continue;
      Set queries = LastOf(pass.alive, stage.queries);
      double shift = 0;
      if (stage.of_question && set.question.end > 0) {
        queries = LastOf(QuestionRows(pass), stage.queries);
        shift = static_cast<double>(pass.prompt - 1 - queries.back());
      }
      const Row w = Widened(pass, Scores(pass, layer - 1, queries, shift, stage.strongest), stage.widen);
      Set always = Either(Range(0, set.sink), Range(pass.prompt - set.last, pass.prompt));
      always = Both(pass.alive, Either(always, LastOf(QuestionRows(pass), set.last)));
      const auto share = static_cast<size_t>(std::ceil(stage.keep * static_cast<double>(pass.prompt) - 1e-9));
      const size_t most = std::max(share, set.floor);
      const size_t held = always.size() + Holding(Without(pass.alive, always), w, stage.mass, pass);
      const size_t budget = std::min(most, std::max(set.floor, held));
      const size_t rest = budget - std::min(budget, always.size());
      const Set kept = Either(always, BestOf(Without(pass.alive, always), w, rest, pass));
      pass.Leave(Without(pass.alive, kept), layer, false, true);
    }
  }

  void StepBeforeLayer(Pass& pass, size_t layer) override {
    for (const Stage& stage : set.stages) {
      if (stage.layer != layer) continue;
      const Row s = Scores(pass, layer - 1, {pass.current}, 0, stage.strongest);
      const Row w = Widened(pass, s, stage.widen);
      Set parked;
      double all = 0, there = 0;
      for (const size_t i : pass.alive) {
        all += s[i];
        if (i == pass.current || pass.depth[i] > layer) continue;
        parked.push_back(i);
        there += s[i];
      }
      if (!parked.empty() && all > 0) pass.Clear(std::abs(there / all - set.revive_mass));
      const bool revives = there > set.revive_mass * all;
      const Set back = revives ? BestOf(parked, w, set.revive_cap, pass) : Set{};
      pass.alive = Either(Without(pass.alive, parked), back);
      const Set gone = Without(Both(pass.runs, parked), back);
      pass.Return(Without(back, pass.runs));
      const Set alive = pass.alive;
      pass.Leave(gone, layer, false, true);
      pass.alive = alive;
    }
  }
};

}  // namespace coppice::oracle
