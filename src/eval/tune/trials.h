// The samples of `coppice tune`: cut into ranges of length and two halves, answered by the engine, and
// recorded in a journal.
#pragma once

#include <atomic>
#include <functional>
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
#include "eval/tune/time_plan.h"
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
  // The approximate seconds that Run would take; 0 if the journal has the result, or if no dense answer is
  // known yet. `share`: of dense's FLOPs.
  double Expect(size_t sample, const std::string& spec, double share);
  // Seconds of a dense answer to a prompt of `tokens` tokens, by the rate of those that ran; 0 before the
  // first.
  double DenseSeconds(int64_t tokens) const;
  double FlopsShare(const std::string& spec, int64_t tokens);
  // On the first of the samples, in the rounds of the reserve.
  std::vector<Cost> Time(const std::vector<size_t>& samples, const std::vector<std::string>& specs,
                         const TuneReserve& reserve);
  std::string Full(const std::string& spec, int64_t tokens) const;
  double seconds() const { return clock_() - begin_; }

 private:
  struct TunedSample {
    const EvalGroup* group;
    Sample sample;
    int64_t tokens = 0;
  };

  void MakeSamples(bool judges_scores);
  const SampleRecord* Recorded(size_t sample, const std::string& spec) const;
  void NotePace(size_t sample, const SampleResult& dense);
  const SampleResult& ResultOf(size_t sample, const std::string& spec);
  SampleResult FirstToken(size_t sample, const std::string& spec);
  void NeedDense(size_t sample);
  void NoteLogits(size_t sample);

  const EvalOptions& options_;
  Engine& engine_;
  std::function<double()> clock_;
  double begin_;
  Filler filler_;
  TaskMetrics metrics_;
  ArmContext context_;
  Journal journal_;
  std::vector<EvalGroup> groups_;
  std::vector<std::string> skipped_;
  std::vector<TunedSample> samples_;
  std::vector<DenseLogits> dense_;  // [samples]; empty where not known
  std::vector<bool> paced_;         // [samples]: its dense answer's time is in the two sums
  double dense_seconds_ = 0, dense_tokens_ = 0;
  std::map<std::pair<std::string, int64_t>, double> flops_;
  std::unique_ptr<Backend> planner_;  // the dry run's own: the engine's keeps its times
};

// Some of the samples, as the runner of a search. FLOPs are planned for `length`.
class SomeTrials final : public TuneRunner {
 public:
  SomeTrials(Trials& all, std::vector<size_t> samples, int64_t length, const TuneReserve& reserve)
      : all_(all), samples_(std::move(samples)), length_(length), reserve_(reserve) {}
  size_t samples() const override { return samples_.size(); }
  Trial Run(size_t sample, const std::string& spec) override { return all_.Run(samples_[sample], spec); }
  double FlopsShare(const std::string& spec) override { return all_.FlopsShare(spec, length_); }
  std::vector<Cost> Time(const std::vector<std::string>& specs) override {
    return all_.Time(samples_, specs, reserve_);
  }
  double seconds() const override { return all_.seconds(); }
  double RunSeconds() override { return all_.DenseSeconds(length_); }
  double Expect(size_t sample, const std::string& spec) override;
  double TimingTakes(size_t specs) override;
  std::string Full(const std::string& spec) override { return all_.Full(spec, length_); }

 private:
  Trials& all_;
  std::vector<size_t> samples_;
  int64_t length_;
  TuneReserve reserve_;
};

}  // namespace coppice
