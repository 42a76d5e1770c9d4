// The samples of `coppice tune`: cut into ranges of length and two halves, answered by the engine, and
// recorded in a journal.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "eval/arm.h"
#include "eval/filler.h"
#include "eval/journal.h"
#include "eval/setup.h"
#include "eval/tune/search.h"
#include "eval/tune/tune.h"

namespace coppice {

// A task's samples of one range, in random order: every second one is held out.
struct TaskSamples {
  std::string task;
  int64_t length = 0;  // as EvalGroup has it
  std::vector<size_t> searched;
  std::vector<size_t> held_out;
};

class Trials {
 public:
  Trials(const TuneOptions& options, const std::string& model, Engine& engine,
         const std::atomic<bool>* cancelled);

  // The tasks with samples whose prompts are in the range of `length`, and nearer to it than to any other of
  // `lengths`.
  std::vector<TaskSamples> SamplesIn(int64_t length, const std::vector<int64_t>& lengths) const;
  const std::vector<std::string>& skipped() const { return skipped_; }

  // `sample` is an index. A result that the journal has is not computed again.
  Trial Run(size_t sample, const std::string& spec);
  // Seconds of the sample's dense run, which is run if the journal does not have it.
  double DenseSeconds(size_t sample);
  double FlopsShare(const std::string& spec, int64_t tokens);
  std::vector<Cost> Time(const std::vector<size_t>& samples, const std::vector<std::string>& specs);
  double seconds() const;  // since the beginning

 private:
  struct TunedSample {
    const EvalGroup* group;
    Sample sample;
    int64_t tokens = 0;
  };

  void MakeSamples(bool judges_scores);
  const SampleResult& ResultOf(size_t sample, const std::string& spec);
  SampleResult FirstToken(size_t sample, const std::string& spec);
  void NeedDense(size_t sample);
  void NoteLogits(size_t sample);

  const EvalOptions& options_;
  Engine& engine_;
  std::chrono::steady_clock::time_point begin_;
  Filler filler_;
  TaskMetrics metrics_;
  ArmContext context_;
  Journal journal_;
  std::vector<EvalGroup> groups_;
  std::vector<std::string> skipped_;
  std::vector<TunedSample> samples_;
  std::vector<DenseLogits> dense_;  // [samples]; empty where not known
  std::map<std::pair<std::string, int64_t>, double> flops_;
  std::unique_ptr<Backend> planner_;  // the dry run's own: the engine's keeps its times
};

// Some of the samples, as the runner of a search. FLOPs are planned for `length`.
class SomeTrials final : public TuneRunner {
 public:
  SomeTrials(Trials& all, std::vector<size_t> samples, int64_t length)
      : all_(all), samples_(std::move(samples)), length_(length) {}
  size_t samples() const override { return samples_.size(); }
  Trial Run(size_t sample, const std::string& spec) override { return all_.Run(samples_[sample], spec); }
  double FlopsShare(const std::string& spec) override { return all_.FlopsShare(spec, length_); }
  std::vector<Cost> Time(const std::vector<std::string>& specs) override {
    return all_.Time(samples_, specs);
  }
  double seconds() const override { return all_.seconds(); }
  double RunSeconds() override;  // of a dense run, the mean of a few samples

 private:
  Trials& all_;
  std::vector<size_t> samples_;
  int64_t length_;
};

}  // namespace coppice
