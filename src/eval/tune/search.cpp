#include "eval/tune/search.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "eval/tune/grid.h"

namespace coppice {

namespace {

constexpr size_t kFewest = 2;          // samples of the first round
constexpr size_t kRounds = 4;          // of halving
constexpr size_t kSurvivors = 4;       // at least
constexpr double kWorthwhile = 0.995;  // of the best's time: less is noise
constexpr double kSteps[] = {0.3, 0.15};

double MedianOf(std::vector<double> values) {
  if (values.empty()) return 1;
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

class SearchRun {
 public:
  SearchRun(const SearchOptions& options, TuneRunner& runner, const SearchNote& note)
      : options_(options), runner_(runner), note_(note) {}

  SearchResult All(const std::vector<std::string>& specs) {
    for (const std::string& spec : specs) Add(spec, 1);
    std::stable_sort(tried_.begin(), tried_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.flops < b.flops; });
    Expect(static_cast<double>(runner_.samples()) + HalvingWork(tried_.size(), 0) + LastWork());
    RunDense();
    Halve();
    FollowThoseThatWait();
    if (Best() != nullptr) Refine();
    Retime();
    return Result();
  }

 private:
  // Work counts in dense runs of one sample. `rest`: what is still to be done, as far as one can tell.
  void Expect(double rest) { expected_ = done_ + rest; }

  void Note(const std::string& label) {
    if (expected_ > 0) share_ = std::clamp(done_ / expected_, share_, 1.0);
    if (note_) note_({label, share_});
  }

  size_t Until(size_t round) const {
    return std::min(runner_.samples(), std::max(kFewest, runner_.samples() >> (kRounds - 1 - round)));
  }
  static size_t Survivors(size_t alive) { return std::min(alive, std::max((alive + 1) / 2, kSurvivors)); }

  double MeanFlops() const {
    double sum = 0;
    for (const Candidate& c : tried_) sum += c.flops;
    return tried_.empty() ? 1 : sum / static_cast<double>(tried_.size());
  }

  // Of halving from a round on, if all that survive a round answer rightly.
  double HalvingWork(size_t alive, size_t round) const {
    double runs = 0;
    for (size_t before = round == 0 ? 0 : Until(round - 1); round < kRounds; ++round) {
      runs += static_cast<double>(alive) * static_cast<double>(Until(round) - before);
      before = Until(round);
      alive = Survivors(alive);
    }
    return runs * MeanFlops();
  }

  // Of refinement, whose steps end halfway as a rule, and of timing again.
  double LastWork() const {
    const auto n = static_cast<double>(runner_.samples());
    const double steps = 0.5 * n * static_cast<double>(options_.most_steps - steps_);
    return steps * MeanFlops() + RetimingWork();
  }
  double RetimingWork() const {
    const auto n = static_cast<double>(std::min(runner_.samples(), kRetimedSamples));
    return kRetimingRounds * n * (1 + static_cast<double>(options_.finalists) * MeanFlops());
  }

  void RunDense() {
    for (size_t s = 0; s < runner_.samples(); ++s) {
      Note(fmt::format("dense, sample {}/{}", s + 1, runner_.samples()));
      dense_.push_back(runner_.Run(s, "none"));
      dense_total_ += dense_.back().score;
      ++done_;
    }
    if (options_.budget.score_loss && dense_total_ <= 0)
      throw Error(
          "the dense model scores 0 on every sample: there is nothing to lose; give --budget kl=BOUND");
  }

  // Null where the spec was there, is none, or is not below `most_flops` of dense.
  Candidate* Add(const std::string& spec, double most_flops) {
    if (!specs_.insert(spec).second) return nullptr;
    double flops = 1;
    try {
      flops = runner_.FlopsShare(spec);
    } catch (const Error&) {  // not a spec for this model: two stages in one layer, more layers than it has
      return nullptr;
    }
    if (flops >= most_flops) return nullptr;
    tried_.push_back({.spec = spec, .flops = flops, .quality = {}, .ttft = {}, .retimed = {}});
    return &tried_.back();
  }

  bool IsOut(const Candidate& c) const { return c.verdict == Verdict::kOver || c.verdict == Verdict::kAside; }

  // One more sample. False where the candidate is out.
  bool Step(Candidate& c) {
    const size_t s = c.quality.samples;
    Note(fmt::format("{}, sample {}/{}", c.spec, s + 1, runner_.samples()));
    const Trial trial = runner_.Run(s, c.spec);
    done_ += c.flops;
    c.quality.score += trial.score;
    c.quality.dense_score += dense_[s].score;
    c.quality.kl += trial.kl;
    ++c.quality.samples;
    c.ttft.push_back(dense_[s].ttft_ms > 0 ? trial.ttft_ms / dense_[s].ttft_ms : 1);
    c.active = c.active || trial.active;
    if (!CanMeet(options_.budget, c.quality, runner_.samples(), dense_total_)) {
      c.verdict = Verdict::kOver;
    } else if (c.quality.samples == runner_.samples()) {
      c.verdict = c.active ? Verdict::kMeets : Verdict::kAside;
    }
    return !IsOut(c);
  }

  void Halve() {
    std::vector<size_t> alive;
    for (size_t i = 0; i < tried_.size(); ++i) alive.push_back(i);
    for (size_t round = 0; round < kRounds && !alive.empty(); ++round) {
      const size_t until = Until(round);
      Expect(HalvingWork(alive.size(), round) + LastWork());
      for (size_t s = 0; s < until; ++s) {
        for (const size_t i : alive) {
          if (!IsOut(tried_[i]) && tried_[i].quality.samples == s) Step(tried_[i]);
        }
      }
      std::erase_if(alive, [&](size_t i) { return IsOut(tried_[i]); });
      if (until == runner_.samples()) return;
      std::stable_sort(alive.begin(), alive.end(), [&](size_t a, size_t b) {
        const bool a_meets = Meets(options_.budget, tried_[a].quality);
        const bool b_meets = Meets(options_.budget, tried_[b].quality);
        return a_meets != b_meets ? a_meets : tried_[a].ttft_ratio() < tried_[b].ttft_ratio();
      });
      alive.resize(Survivors(alive.size()));
    }
  }

  Candidate* Best() {
    Candidate* best = nullptr;
    for (Candidate& c : tried_) {
      if (c.verdict == Verdict::kMeets && (best == nullptr || c.ttft_ratio() < best->ttft_ratio())) best = &c;
    }
    return best;
  }

  // To the end of the samples, unless it is out or, halfway, not faster than the best. True where it meets the budget.
  bool Follow(Candidate& c) {
    while (c.quality.samples < runner_.samples()) {
      const Candidate* best = Best();
      const bool judged = c.quality.samples * 2 >= runner_.samples() && c.quality.samples >= kFewest;
      if (best != nullptr && judged && c.ttft_ratio() > kWorthwhile * best->ttft_ratio()) {
        c.verdict = Verdict::kSlower;
        return false;
      }
      if (!Step(c)) return false;
    }
    return c.verdict == Verdict::kMeets;
  }

  void FollowThoseThatWait() {
    std::vector<size_t> waiting;
    for (size_t i = 0; i < tried_.size(); ++i) {
      if (tried_[i].verdict == Verdict::kWaits) waiting.push_back(i);
    }
    std::stable_sort(waiting.begin(), waiting.end(),
                     [&](size_t a, size_t b) { return tried_[a].ttft_ratio() < tried_[b].ttft_ratio(); });
    for (const size_t i : waiting) {
      Expect(tried_[i].flops * static_cast<double>(runner_.samples() - tried_[i].quality.samples) +
             LastWork());
      const Candidate* best = Best();
      if (best != nullptr && tried_[i].ttft_ratio() > kWorthwhile * best->ttft_ratio()) return;
      Follow(tried_[i]);
    }
  }

  // True where a cheaper neighbour of `best` in this direction took its place.
  bool Try(const Direction& direction) {
    for (const std::string& spec : direction.specs) {
      if (steps_ >= options_.most_steps) return false;
      const Candidate before = *Best();  // tried_ may move
      Candidate* c = Add(spec, before.flops);
      if (c == nullptr) continue;
      ++steps_;
      Expect(LastWork());
      Note("refining " + direction.name);
      if (Follow(*c) && c->ttft_ratio() <= kWorthwhile * before.ttft_ratio()) return true;
    }
    return false;
  }

  void Refine() {
    for (const double step : kSteps) {
      bool moved = true;
      while (moved && steps_ < options_.most_steps) {
        moved = false;
        for (const Direction& direction : NeighboursOf(Best()->spec, step)) {
          // The best may have moved away under this list: then begin with its own.
          moved = Try(direction);
          if (moved) break;
        }
      }
    }
  }

  void Retime() {
    std::vector<Candidate*> finalists;
    for (Candidate& c : tried_) {
      if (c.verdict == Verdict::kMeets) finalists.push_back(&c);
    }
    std::stable_sort(finalists.begin(), finalists.end(), [](const Candidate* a, const Candidate* b) {
      return a->ttft_ratio() < b->ttft_ratio();
    });
    finalists.resize(std::min(finalists.size(), options_.finalists));
    if (finalists.empty()) return;
    Expect(RetimingWork());
    Note("timing the best again, in turn with dense");
    std::vector<std::string> specs;
    for (const Candidate* c : finalists) specs.push_back(c->spec);
    const std::vector<double> ratios = runner_.Retime(specs);
    COPPICE_CHECK(ratios.size() == finalists.size());
    for (size_t i = 0; i < finalists.size(); ++i) finalists[i]->retimed = ratios[i];
  }

  SearchResult Result() {
    std::stable_sort(tried_.begin(), tried_.end(), [](const Candidate& a, const Candidate& b) {
      const auto key = [](const Candidate& c) {
        return std::tuple(static_cast<int>(c.verdict), !c.retimed.has_value(), c.ttft_ratio());
      };
      return key(a) < key(b);
    });
    SearchResult result;
    result.dense_score = dense_.empty() ? 0 : dense_total_ / static_cast<double>(dense_.size());
    // What is retimed and no faster than dense is no gain, whatever it costs.
    if (!tried_.empty() && tried_.front().verdict == Verdict::kMeets && tried_.front().ttft_ratio() < 1)
      result.best = 0;
    if (!result.best) {
      for (size_t i = 0; i < tried_.size(); ++i) {
        const Candidate& c = tried_[i];
        if (c.verdict == Verdict::kAside || c.quality.samples == 0) continue;
        if (!result.nearest || BudgetUse(options_.budget, c.quality) <
                                   BudgetUse(options_.budget, tried_[*result.nearest].quality))
          result.nearest = i;
      }
    }
    result.tried = std::move(tried_);
    return result;
  }

  const SearchOptions& options_;
  TuneRunner& runner_;
  const SearchNote& note_;
  std::vector<Trial> dense_;
  double dense_total_ = 0;
  std::vector<Candidate> tried_;
  std::set<std::string> specs_;
  size_t steps_ = 0;
  double done_ = 0, expected_ = 0, share_ = 0;
};

}  // namespace

double Candidate::ttft_ratio() const { return retimed ? *retimed : MedianOf(ttft); }

double Candidate::mean_kl() const {
  return quality.samples == 0 ? 0 : quality.kl / static_cast<double>(quality.samples);
}

SearchResult Search(const std::vector<std::string>& specs, const SearchOptions& options, TuneRunner& runner,
                    const SearchNote& note) {
  return SearchRun(options, runner, note).All(specs);
}

}  // namespace coppice
