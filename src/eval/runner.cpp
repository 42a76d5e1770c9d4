#include "eval/runner.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/error.h"
#include "eval/attention_mass.h"
#include "eval/data.h"
#include "eval/journal.h"
#include "eval/report/page.h"
#include "eval/setup.h"
#include "eval/summary.h"

namespace coppice {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kWriteEvery{5};

class Run {
 public:
  Run(const EvalOptions& options, const std::string& model, Engine& engine,
      const std::atomic<bool>* cancelled, const std::function<void(const EvalProgress&)>& progress)
      : options_(options),
        engine_(engine),
        progress_(progress),
        filler_(options.haystack.empty() ? Filler() : Filler(options.haystack)),
        metrics_(options.jieba),
        context_{engine, metrics_, options.chat, options.protection, cancelled, {}},
        journal_(options.folder + "/samples.jsonl", SettingsOf(options, model, engine)),
        resumed_(!journal_.records().empty()),
        groups_(GroupsOf(options, engine)) {
    arms_.push_back("none");
    arms_.insert(arms_.end(), options.prune.begin(), options.prune.end());
  }

  EvalResult All() {
    // Missing data are an error at the start, not after an hour.
    for (const EvalGroup& group : groups_) {
      if (group.named && group.task->needs_data) OneSample(group);
    }
    if (!resumed_) WriteResults();  // rows of an earlier run do not stay beside the first samples
    try {
      for (const EvalGroup& group : groups_) RunIfThere(group);
    } catch (const Cancelled&) {
      WriteAll();
      throw;
    }
    WriteAll();
    return {rows_, skipped_};
  }

 private:
  void OneSample(const EvalGroup& group) const {
    EvalOptions one = options_;
    one.samples = 1;
    SamplesOf(group, one, filler_, engine_);
  }

  void RunIfThere(const EvalGroup& group) {
    try {
      RunGroup(group);
    } catch (const MissingData& missing) {
      if (group.named) throw;
      skipped_.emplace_back(missing.what());
      done_ += weight_;
      if (skipped_.size() == groups_.size()) throw;
    }
  }

  void RunGroup(const EvalGroup& group) {
    const std::string name =
        group.length == 0 ? group.task->name : fmt::format("{} {}", group.task->name, group.length);
    weight_ = WeightOf(group);
    Show(name + ", making samples", 0);
    const std::vector<Sample> samples = SamplesOf(group, options_, filler_, engine_);
    bool warm = false;
    for (size_t i = 0; i < samples.size(); ++i) {
      const Sample& sample = samples[i];
      within_group_ = static_cast<double>(i) / static_cast<double>(samples.size());
      if (IsDone(group, sample)) continue;
      try {
        RunOne(group, sample, fmt::format("{}, sample {}/{}", name, i + 1, samples.size()), samples.size(),
               warm);
      } catch (const Error& error) {
        throw Error("{}, sample {}: {}", name, sample.id, error.what());
      }
      warm = true;
    }
    done_ += weight_;
    within_group_ = 0;
  }

  void RunOne(const EvalGroup& group, const Sample& sample, const std::string& name, size_t samples,
              bool warm) {
    // Pages, workspaces and caches of this length are touched once before anything is timed.
    DenseLogits dense;
    std::vector<std::vector<double>> attention_mass;
    if (!warm) {
      Sample first = sample;
      first.max_tokens = std::min<int64_t>(first.max_tokens, 1);
      if (first.choices.size() > 1) first.choices.resize(1);
      RunSample(first, "none", context_, dense);
      attention_mass = AttentionMassOf(engine_, PromptOf(first, context_), context_.cancelled);
    }
    SampleRecord record{.task = group.task->name,
                        .length = group.length,
                        .id = sample.id,
                        .metric = MetricOf(sample),
                        .prompt = HashOf(sample),
                        .references = sample.references,
                        .attention_mass = std::move(attention_mass)};
    if (sample.judged) record.question = sample.question;
    if (sample.depth >= 0) record.depth = sample.depth;
    if (sample.kind == SampleKind::kAnswer && TaskMetrics::NeedsChineseWords(sample.metric))
      record.cutter = metrics_.ChineseCutter();
    for (size_t a = 0; a < arms_.size(); ++a) {
      const std::string label = fmt::format("{}, {}", name, arms_[a] == "none" ? "dense" : arms_[a]);
      context_.progress = [&](double share) {
        Show(label, (static_cast<double>(a) + share) / static_cast<double>(arms_.size() * samples));
      };
      record.arms.push_back(RunSample(sample, arms_[a], context_, dense));
    }
    context_.progress = nullptr;
    journal_.Append(std::move(record));
    if (Clock::now() - written_ > kWriteEvery) WriteResults();
  }

  bool IsDone(const EvalGroup& group, const Sample& sample) const {
    const SampleRecord* record = journal_.Find(group.task->name, group.length, sample.id);
    if (record == nullptr) return false;
    if (record->prompt != HashOf(sample)) {
      throw Error(
          "[eval] {}/samples.jsonl: sample {} of {} was another text: the data have changed, choose another "
          "-o",
          options_.folder, sample.id, group.task->name);
    }
    return true;
  }

  void Show(const std::string& label, double within_sample) {
    if (!progress_) return;
    double all = 0;
    for (const EvalGroup& group : groups_) all += WeightOf(group);
    progress_({label, (done_ + weight_ * (within_group_ + within_sample)) / all});
  }

  void WriteAll() {
    WriteResults();
    if (!journal_.records().empty()) WriteReport(options_.folder);
  }

  void WriteResults() {
    rows_ = Summarize(journal_.records());
    if (resumed_) KeepVerdicts(options_.folder, rows_);
    WriteRows(rows_, options_.folder + "/results.json");
    written_ = Clock::now();
  }

  const EvalOptions& options_;
  Engine& engine_;
  const std::function<void(const EvalProgress&)>& progress_;
  Filler filler_;
  TaskMetrics metrics_;
  ArmContext context_;
  Journal journal_;
  bool resumed_;  // verdicts in results.json are of these samples, not of others that were here before
  std::vector<EvalGroup> groups_;
  std::vector<std::string> arms_;
  std::vector<ResultRow> rows_;
  std::vector<std::string> skipped_;
  Clock::time_point written_ = Clock::now();
  double done_ = 0;          // the weights of finished groups
  double weight_ = 0;        // the current group's weight
  double within_group_ = 0;  // the share of its samples that are done
};

}  // namespace

EvalResult Evaluate(const EvalOptions& options, const std::string& model, Engine& engine,
                    const std::atomic<bool>* cancelled,
                    const std::function<void(const EvalProgress& progress)>& progress) {
  Check(options, engine);
  for (const std::string& setting : options.prune) engine.CheckSetting(setting);
  std::error_code failed;
  std::filesystem::create_directories(options.folder, failed);
  if (failed) throw Error("[eval] {}: cannot make the folder: {}", options.folder, failed.message());
  return Run(options, model, engine, cancelled, progress).All();
}

}  // namespace coppice
