#include "eval/tune/range_tuner.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "base/field_error.h"
#include "eval/tune/time_plan.h"

namespace coppice {

namespace {

constexpr size_t kTriedSamples = 8;  // of a task, to see whether dense can do it
constexpr size_t kPaceRuns = 2;      // dense answers, after which the estimate is made

class RangeTuner {
 public:
  RangeTuner(const TuneOptions& options, Engine& engine, Trials& trials, double seconds,
             const SearchNote& note, int64_t length)
      : options_(options),
        shape_(engine.model().config().shape),
        trials_(trials),
        begin_(trials.seconds()),
        end_(begin_ + seconds),
        note_(note) {
    result_.length = length;
    result_.min_tokens = LeastCovered(length);
    result_.max_tokens = MostCovered(length);
    judges_scores_ = std::any_of(options.budgets.begin(), options.budgets.end(),
                                 [](const QualityBudget& b) { return b.score_loss.has_value(); });
    grids_ = Grids();
    first_ = options.methods.empty() ? PromisingSpecs(shape_, length, result_.min_tokens)
                                     : std::vector<std::string>();
  }

  RangeResult All(const std::vector<int64_t>& lengths) {
    const std::vector<TaskSamples> tasks = trials_.SamplesIn(result_.length, lengths);
    try {
      ChooseTasks(tasks);
    } catch (const Cancelled&) {
      result_.interrupted = true;
    }
    if (result_.interrupted || out_of_time_) {
      result_.search.out_of_time = out_of_time_;
      result_.why =
          fmt::format("{} after {} dense answers, before a setting was tested",
                      result_.interrupted ? "it was interrupted" : "the time limit (--time-limit) came",
                      answered_.size());
    } else if (searched_.empty()) {
      result_.why = tasks.empty() ? "no task has samples of this length"
                                  : fmt::format("the dense model scores below {:g} % on every task",
                                                100 * options_.least);
    } else {
      SearchAndTest();
    }
    return std::move(result_);
  }

 private:
  bool IsLimited() const { return std::isfinite(end_); }

  // `left` seconds of work, by an estimate.
  void Note(const std::string& label, double left) {
    const double passed = trials_.seconds() - begin_;
    const double bounded =
        IsLimited() ? std::clamp(left, 0.0, std::max(end_ - trials_.seconds(), 0.0)) : left;
    if (passed > 0) share_ = std::clamp(passed / (passed + bounded), share_, 1.0);
    if (note_) note_({fmt::format("{} tokens: {}", result_.length, label), share_, bounded});
  }

  double DenseSeconds() const { return trials_.DenseSeconds(result_.length); }

  // Before the search, until the estimate is made nothing is known.
  double LeftOfAll() const {
    if (!plan_) return IsLimited() ? end_ - trials_.seconds() : 0;
    return std::max(plan_->seconds - (trials_.seconds() - begin_), Behind());
  }
  double Behind() const {
    const size_t n = plan_ ? plan_->tasks * plan_->per_half : searched_.size();
    return SecondsBehindSearch(n, Reserve(), true, DenseSeconds());
  }
  TuneReserve Reserve() const {
    const double dense = DenseSeconds();
    return ReserveFor(IsLimited() && dense > 0 ? (end_ - begin_) / dense : 1e9);
  }

  TunePlan PlanFor(size_t tasks, bool quick) const {
    TuneWork work{.tasks = tasks,
                  .most_per_half = static_cast<size_t>(std::max<int64_t>(options_.eval.samples / 2, 1)),
                  .settings = first_.size(),
                  .methods = grids_.size(),
                  .dense_seconds = pace_,
                  .limit_seconds = end_ - begin_};
    if (quick) {
      work.most_per_half = std::min(work.most_per_half, kQuickSamples);
      work.methods = std::min<size_t>(work.methods, TuneReserve().timed);
      work.limit_seconds = std::min(work.limit_seconds, 60 * kQuickMinutes);
    } else {
      for (const MethodGrid& grid : grids_) work.settings += grid.specs.size();
    }
    return PlanTune(work);
  }

  // One dense answer of the searched half; false where there is no time for it. After the first few the plan
  // is made and the estimate said.
  bool Dense(size_t sample, size_t tasks, double& sum) {
    const double needed = trials_.Expect(sample, "none", 1);
    if (plan_ && needed > 0 && trials_.seconds() + needed > end_) {
      out_of_time_ = true;
      return false;
    }
    sum += trials_.Run(sample, "none").score;
    answered_.insert(sample);
    if (answered_.size() < kPaceRuns || plan_) return true;
    pace_ = DenseSeconds();
    plan_ = PlanFor(tasks, options_.quick);
    if (options_.say) {
      const double quick = options_.quick ? 0 : PlanFor(tasks, true).seconds;
      options_.say(fmt::format("{} tokens: {}", result_.length, EstimateText(*plan_, pace_, quick)));
    }
    return true;
  }

  size_t PerHalf(const TaskSamples& task) const {
    const size_t most = std::min(task.searched.size(), task.held_out.size());
    return plan_ ? std::min(most, plan_->per_half) : most;
  }

  // Decides whether the task is used: dense answers its first samples, and stops if `least` is out of reach.
  TaskUse UseOf(const TaskSamples& task, size_t number, size_t tasks) {
    TaskUse use{.task = task.task, .length = task.length};
    if (plan_ && number >= plan_->tasks) {
      use.why = "the time limit (--time-limit) has no room for it";
      return use;
    }
    const double least = judges_scores_ ? options_.least : 0;
    double sum = 0;
    const auto wanted = [&] { return std::min(kTriedSamples, PerHalf(task)); };
    const auto reach = [&] { return static_cast<double>(wanted()) * least - 1e-9; };
    while (use.samples < wanted() && sum + static_cast<double>(wanted() - use.samples) >= reach()) {
      Note("dense, " + task.task, LeftOfAll());
      if (!Dense(task.searched[use.samples], tasks, sum)) break;
      ++use.samples;
    }
    use.dense_score = use.samples == 0 ? 0 : sum / static_cast<double>(use.samples);
    use.used = use.samples > 0 && sum >= reach();
    if (out_of_time_) {
      use.why = "the time limit (--time-limit) came first";
    } else if (wanted() == 0) {
      use.why = "it has a sample or none of this length";
    } else if (!use.used) {
      use.why = fmt::format("dense scores {:.0f} on {} samples, {:g} is out of reach", 100 * use.dense_score,
                            use.samples, 100 * least);
    }
    return use;
  }

  void ChooseTasks(const std::vector<TaskSamples>& tasks) {
    size_t used = 0;
    for (size_t t = 0; t < tasks.size() && !out_of_time_; ++t) {
      result_.tasks.push_back(UseOf(tasks[t], t, tasks.size()));
      used += result_.tasks.back().used ? 1 : 0;
    }
    if (out_of_time_ || used == 0) return;
    // Tasks that dense cannot do leave time for samples of the others.
    if (pace_ == 0) pace_ = DenseSeconds();
    plan_ = PlanFor(used, options_.quick);
    std::vector<std::pair<double, size_t>> searched, held_out;
    for (size_t t = 0; t < result_.tasks.size(); ++t) {
      if (!AnswerAll(tasks[t], tasks.size(), result_.tasks[t])) continue;
      const size_t n = result_.tasks[t].samples;
      for (size_t i = 0; i < n; ++i) {
        const double turn = static_cast<double>(i) / static_cast<double>(n);
        searched.emplace_back(turn, tasks[t].searched[i]);
        held_out.emplace_back(turn, tasks[t].held_out[i]);
      }
    }
    searched_ = InTurns(std::move(searched));
    held_out_ = InTurns(std::move(held_out));
  }

  // Dense's answers of all of the task's samples in the plan. False if the task is not used.
  bool AnswerAll(const TaskSamples& task, size_t tasks, TaskUse& use) {
    if (!use.used || out_of_time_) return false;
    double sum = 0;
    for (use.samples = 0; use.samples < PerHalf(task); ++use.samples) {
      Note("dense, " + task.task, LeftOfAll());
      if (!Dense(task.searched[use.samples], tasks, sum)) return false;
    }
    use.dense_score = sum / static_cast<double>(use.samples);
    if (!judges_scores_ || use.dense_score >= options_.least - 1e-9) return true;
    use.used = false;  // the first samples were lucky
    use.why = fmt::format("dense scores {:.0f} on {} samples, below {:g}", 100 * use.dense_score, use.samples,
                          100 * options_.least);
    return false;
  }

  // Tasks alternate, so that the first few samples represent all.
  static std::vector<size_t> InTurns(std::vector<std::pair<double, size_t>> samples) {
    std::stable_sort(samples.begin(), samples.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<size_t> order;
    for (const auto& [turn, sample] : samples) order.push_back(sample);
    return order;
  }

  // Each wish needs a setting that is valid for this model.
  std::vector<MethodGrid> Grids() {
    const std::vector<std::string> wishes = options_.methods.empty() ? TunedMethods() : options_.methods;
    std::vector<MethodGrid> grids;
    bool saves = false;
    for (const std::string& wish : wishes) {
      std::string why = "no setting fits this model";
      bool any = false;
      grids.push_back(GridOf(wish, shape_, result_.length, result_.min_tokens));
      for (const std::string& spec : grids.back().specs) {
        try {
          saves = trials_.FlopsShare(spec, result_.length) < 1 || saves;
          any = true;
        } catch (const Error& error) {
          why = error.what();
        }
      }
      if (!any && !options_.methods.empty()) throw FieldError("methods", " {}: {}", wish, why);
    }
    if (!saves) throw Error("no candidate computes less than dense on prompts of these lengths");
    return grids;
  }

  SearchOptions OptionsOfSearch() {
    SearchOptions options{.budgets = options_.budgets,
                          .most_steps = options_.quick ? 0 : options_.most_steps};
    options.first = first_;
    if (IsLimited()) {
      const auto behind = [&](bool timing) {
        return SecondsBehindSearch(searched_.size(), Reserve(), timing, DenseSeconds());
      };
      options.seconds = std::max(end_ - behind(true) - trials_.seconds(), 0.0);
      options.timed_until = end_ - behind(false);
    }
    if (options_.methods.empty() && !options_.quick) {
      options.compose = [this](const std::string& spec) {
        return CompositionsOf(spec, shape_, result_.length, result_.min_tokens);
      };
    }
    return options;
  }

  void SearchAndTest() {
    const TuneReserve reserve = Reserve();
    SomeTrials searched(trials_, searched_, result_.length, reserve);
    SomeTrials held_out(trials_, held_out_, result_.length, reserve);
    const SearchOptions options = OptionsOfSearch();
    const double search_begin = trials_.seconds();
    const SearchNote search_note = [&](const SearchProgress& p) {
      const double passed = trials_.seconds() - search_begin;
      const double by_share = p.share > 0.05 ? passed * (1 - p.share) / p.share : LeftOfAll();
      const double of_search = IsLimited() ? std::max(options.seconds - passed, 0.0) : by_share;
      Note(p.label, of_search + Behind());
    };
    const SearchNote test_note = [&](const SearchProgress& p) {
      const double each = DenseSeconds() * (1 + kTrialRuns) * static_cast<double>(held_out_.size());
      Note(p.label, (1 - p.share) * each);
    };
    TuneSearch search(options, searched, search_note);
    try {
      search.Run(options_.quick && options_.methods.empty() ? std::vector<MethodGrid>() : grids_);
    } catch (const Cancelled&) {
      result_.interrupted = true;
    }
    result_.picks = PickSettings(search, options_.budgets, held_out, end_, test_note);
    result_.search = search.result();
    for (const Pick& pick : result_.picks) {
      result_.interrupted = result_.interrupted || pick.interrupted;
      result_.search.out_of_time = result_.search.out_of_time || pick.out_of_time;
    }
  }

  const TuneOptions& options_;
  const ModelShape& shape_;
  Trials& trials_;
  double begin_, end_;
  const SearchNote& note_;
  bool judges_scores_ = false;
  std::vector<MethodGrid> grids_;
  std::vector<std::string> first_;
  double pace_ = 0;  // seconds of a dense answer, by the first few
  std::optional<TunePlan> plan_;
  std::set<size_t> answered_;  // by dense, of the searched half
  bool out_of_time_ = false;
  double share_ = 0;
  std::vector<size_t> searched_, held_out_;
  RangeResult result_;
};

}  // namespace

RangeResult TuneRange(const TuneOptions& options, Engine& engine, Trials& trials, double seconds,
                      const SearchNote& note, int64_t length) {
  return RangeTuner(options, engine, trials, seconds, note, length).All(options.eval.lengths);
}

}  // namespace coppice
