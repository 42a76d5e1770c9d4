#include "eval/tune/tune.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "base/field_error.h"
#include "base/new_file.h"
#include "eval/setup.h"
#include "eval/tune/trials.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;

constexpr int64_t kDefaultLength = 4096;
// Parts of the time of one length: dense runs are planned to fit into the first, the search ends at the
// second.
constexpr double kDenseShare = 0.2;
constexpr double kSearchShare = 0.7;
constexpr size_t kFewestSamples = 4;  // of a task and half
constexpr size_t kTriedSamples = 8;   // of a task, to see whether dense can do it

std::vector<int64_t> LengthsOf(const EvalOptions& options, const Engine& engine) {
  std::vector<int64_t> lengths = options.lengths;
  if (lengths.empty()) lengths = {std::min(kDefaultLength, engine.context())};
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

// One length: its tasks and samples, the search, and the test on the other half.
class RangeTuner {
 public:
  RangeTuner(const TuneOptions& options, Engine& engine, Trials& trials, double seconds,
             const SearchNote& note)
      : options_(options),
        shape_(engine.model().config().shape),
        trials_(trials),
        begin_(trials.seconds()),
        seconds_(seconds),
        note_(note) {}

  RangeResult All(int64_t length, const std::vector<int64_t>& lengths) {
    result_.length = length;
    result_.min_tokens = LeastCovered(length);
    result_.max_tokens = MostCovered(length);
    const std::vector<TaskSamples> tasks = trials_.SamplesIn(length, lengths);
    ChooseTasks(tasks);
    if (searched_.empty()) {
      result_.why = tasks.empty() ? "no task has samples of this length"
                                  : fmt::format("the dense model scores below {:g} % on every task",
                                                100 * options_.least);
      return std::move(result_);
    }
    SearchAndTest();
    return std::move(result_);
  }

 private:
  SearchNote Within(double from, double to) const {
    return [this, from, to](const SearchProgress& p) {
      if (note_) note_({fmt::format("{} tokens: {}", result_.length, p.label), from + (to - from) * p.share});
    };
  }

  // The samples of each task and half for which dense runs fit into their part of the time; `runs` dense runs
  // took `seconds`.
  size_t SamplesPerHalf(size_t tasks, size_t runs, double seconds) const {
    if (!std::isfinite(seconds_) || tasks * runs == 0 || seconds <= 0) return SIZE_MAX;
    const double each = 2 * static_cast<double>(tasks) * seconds / static_cast<double>(runs);
    if (each * kFewestSamples > kSearchShare * seconds_) {
      throw FieldError("time_limit",
                       ": {} dense runs of {} tasks take about {:.1f} minutes, of {:.1f} for {} tokens: "
                       "raise it, or name fewer tasks",
                       2 * kFewestSamples * tasks, tasks, each * kFewestSamples / 60, seconds_ / 60,
                       result_.length);
    }
    return std::max(static_cast<size_t>(kDenseShare * seconds_ / each), kFewestSamples);
  }

  // Decides whether the task is used: dense answers its first samples, and stops if `least` is out of reach.
  TaskUse UseOf(const TaskSamples& task, double least) {
    const size_t n = std::min({kTriedSamples, task.searched.size(), task.held_out.size()});
    const auto reach = static_cast<double>(n) * least - 1e-9;
    TaskUse use{.task = task.task, .length = task.length};
    double sum = 0;
    while (use.samples < n && sum + static_cast<double>(n - use.samples) >= reach)
      sum += trials_.Run(task.searched[use.samples++], "none").score;
    use.dense_score = use.samples == 0 ? 0 : sum / static_cast<double>(use.samples);
    use.used = n > 0 && sum >= reach;
    if (n == 0) {
      use.why = "it has a sample or none of this length";
    } else if (!use.used) {
      use.why = fmt::format("dense scores {:.0f} on {} samples, {:g} is out of reach", 100 * use.dense_score,
                            use.samples, 100 * least);
    }
    return use;
  }

  std::string BelowLeast(const TaskUse& use) const {
    return fmt::format("dense scores {:.0f} on {} samples, below {:g}", 100 * use.dense_score, use.samples,
                       100 * options_.least);
  }

  void ChooseTasks(const std::vector<TaskSamples>& tasks) {
    const bool judges_scores = std::any_of(options_.budgets.begin(), options_.budgets.end(),
                                           [](const QualityBudget& b) { return b.score_loss.has_value(); });
    const SearchNote note = Within(0, 0.2);
    size_t used = 0, runs = 0;
    double seconds = 0;
    for (size_t t = 0; t < tasks.size(); ++t) {
      note({"dense, " + tasks[t].task, 0.5 * static_cast<double>(t) / static_cast<double>(tasks.size())});
      result_.tasks.push_back(UseOf(tasks[t], judges_scores ? options_.least : 0));
      const TaskUse& use = result_.tasks.back();
      used += use.used ? 1 : 0;
      runs += use.samples;
      for (size_t i = 0; i < use.samples; ++i) seconds += trials_.DenseSeconds(tasks[t].searched[i]);
    }
    const size_t per_half = SamplesPerHalf(used, runs, seconds);
    std::vector<std::pair<double, size_t>> searched, held_out;
    for (size_t t = 0; t < tasks.size(); ++t) {
      TaskUse& use = result_.tasks[t];
      if (!use.used) continue;
      note({"dense, " + use.task, 0.5 + 0.5 * static_cast<double>(t) / static_cast<double>(tasks.size())});
      const size_t n = std::min({per_half, tasks[t].searched.size(), tasks[t].held_out.size()});
      double sum = 0;
      for (use.samples = 0; use.samples < n; ++use.samples)
        sum += trials_.Run(tasks[t].searched[use.samples], "none").score;
      use.dense_score = sum / static_cast<double>(n);
      if (judges_scores && use.dense_score < options_.least - 1e-9) {  // the first samples were lucky
        use.used = false;
        use.why = BelowLeast(use);
        continue;
      }
      for (size_t i = 0; i < n; ++i) {
        const double turn = static_cast<double>(i) / static_cast<double>(n);
        searched.emplace_back(turn, tasks[t].searched[i]);
        held_out.emplace_back(turn, tasks[t].held_out[i]);
      }
    }
    searched_ = InTurns(std::move(searched));
    held_out_ = InTurns(std::move(held_out));
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
  std::vector<MethodGrid> Grids(TuneRunner& runner) {
    const std::vector<std::string> wishes = options_.methods.empty() ? TunedMethods() : options_.methods;
    std::vector<MethodGrid> grids;
    bool saves = false;
    for (const std::string& wish : wishes) {
      std::string why = "no setting fits this model";
      bool any = false;
      grids.push_back(GridOf(wish, shape_, result_.length, result_.min_tokens));
      for (const std::string& spec : grids.back().specs) {
        try {
          saves = runner.FlopsShare(spec) < 1 || saves;
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

  void SearchAndTest() {
    SomeTrials searched(trials_, searched_, result_.length), held_out(trials_, held_out_, result_.length);
    const SearchNote search_note = Within(0.2, 0.75), test_note = Within(0.75, 1);
    search_note({"planning", 0});
    SearchOptions options{.budgets = options_.budgets, .most_steps = options_.most_steps};
    options.seconds = begin_ + kSearchShare * seconds_ - trials_.seconds();
    if (options_.methods.empty()) {
      options.compose = [this](const std::string& spec) {
        return CompositionsOf(spec, shape_, result_.length, result_.min_tokens);
      };
    }
    TuneSearch search(options, searched, search_note);
    search.Run(Grids(searched));
    result_.picks = PickSettings(search, options_.budgets, held_out, begin_ + seconds_, test_note);
    result_.search = search.result();
  }

  const TuneOptions& options_;
  const ModelShape& shape_;
  Trials& trials_;
  double begin_, seconds_;
  const SearchNote& note_;
  std::vector<size_t> searched_, held_out_;
  RangeResult result_;
};

void WriteTried(const std::vector<RangeResult>& ranges, const std::string& path) {
  ordered_json rows = ordered_json::array();
  for (const RangeResult& range : ranges) {
    for (const Candidate& c : range.search.tried) {
      if (c.quality.samples == 0) continue;
      const auto n = static_cast<double>(c.quality.samples);
      ordered_json row = {{"length", range.length},
                          {"prune", c.spec},
                          {"verdict", VerdictText(c.verdict)},
                          {"samples", c.quality.samples},
                          {"score", 100 * c.quality.score / n},
                          {"dense_score", 100 * c.quality.dense_score / n},
                          {"kl", c.mean_kl()},
                          {"planned_flops", c.flops}};
      if (c.cost) row.update({{"ttft_ratio", c.cost->ttft}, {"flops_ratio", c.cost->flops}});
      rows.push_back(std::move(row));
    }
  }
  NewFile file(path, "tune");
  file.Append(rows.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  file.Commit();
}

}  // namespace

std::vector<std::string> DefaultTasks(bool has_data) {
  std::vector<std::string> tasks = {"niah",
                                    "ruler/niah_single_1",
                                    "ruler/niah_single_2",
                                    "ruler/niah_single_3",
                                    "ruler/niah_multikey_1",
                                    "ruler/niah_multikey_2",
                                    "ruler/niah_multivalue",
                                    "ruler/niah_multiquery",
                                    "ruler/vt"};
  if (has_data) tasks.insert(tasks.end(), {"kv_retrieval", "longeval"});
  return tasks;
}

int64_t LeastCovered(int64_t length) { return (9 * length + 9) / 10; }
int64_t MostCovered(int64_t length) { return 3 * length / 2; }

TuneResult Tune(const TuneOptions& options, const std::string& model, Engine& engine,
                const std::atomic<bool>* cancelled, const SearchNote& note) {
  TuneOptions o = options;
  if (o.eval.tasks.empty()) o.eval.tasks = DefaultTasks(!o.eval.data.empty());
  o.eval.lengths = LengthsOf(o.eval, engine);
  Check(o.eval, engine);
  std::error_code failed;
  std::filesystem::create_directories(o.eval.folder, failed);
  if (failed) throw Error("[tune] {}: cannot make the folder: {}", o.eval.folder, failed.message());
  if (note) note({"making samples", 0});
  Trials trials(o, model, engine, cancelled);
  TuneResult result{{}, trials.skipped()};
  // Long prompts get the larger part of the time.
  double all = 0, before = 0;
  for (const int64_t length : o.eval.lengths) all += static_cast<double>(length);
  for (const int64_t length : o.eval.lengths) {
    const double share = static_cast<double>(length) / all;
    const SearchNote part = [&](const SearchProgress& p) {
      // The limit may come before the work is done.
      const double passed = o.minutes > 0 ? trials.seconds() / (60 * o.minutes) : 0;
      if (note) note({p.label, std::clamp(passed, before + share * p.share, 1.0)});
    };
    const double left =
        o.minutes > 0 ? 60 * o.minutes - trials.seconds() : std::numeric_limits<double>::infinity();
    const double seconds = left * share / (1 - before);
    result.ranges.push_back(RangeTuner(o, engine, trials, seconds, part).All(length, o.eval.lengths));
    before += share;
    WriteTried(result.ranges, o.eval.folder + "/tune.json");
  }
  return result;
}

const char* VerdictText(Verdict verdict) {
  switch (verdict) {
    case Verdict::kWaits:
      return "not followed";
    case Verdict::kDone:
      return "answered all";
    case Verdict::kOver:
      return "over the budget";
    case Verdict::kAside:
      return "stands aside";
  }
  return "";
}

}  // namespace coppice
