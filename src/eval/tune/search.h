// The search for the fastest schedule within a quality budget. It knows no model: what a spec costs and how it answers
// comes from a TuneRunner, so that the search itself is tested on landscapes that are known.
//
// 1. Candidates in the order of their FLOPs by the dry run; those that save none are left out.
// 2. Successive halving: all answer a few samples, the better half twice as many, and so on (Jamieson and Talwalkar,
//    2016). Better is sooner, of those within the budget so far. A candidate ends as soon as it cannot meet the budget
//    whatever the rest of its answers are; one that was only overtaken waits.
// 3. Those that wait go on where they look faster than the best that meets the budget, or where none does: so "nothing
//    meets the budget" means that every candidate was seen to fail.
// 4. From the best, one coordinate at a time to cheaper neighbours, in steps of two sizes.
// 5. The best few once more, in turn with dense: their order and the ratio that is reported come from there.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "eval/tune/budget.h"

namespace coppice {

// One sample under one spec.
struct Trial {
  double score = 0;  // in [0, 1]
  double kl = 0;     // from dense, in nats
  double ttft_ms = 0;
  bool active = true;  // the method acted
};

class TuneRunner {
 public:
  virtual ~TuneRunner() = default;
  virtual size_t samples() const = 0;
  // Runs, or remembers. "none" is dense.
  virtual Trial Run(size_t sample, const std::string& spec) = 0;
  // Of the prefill, of dense's, without running. Throws Error for a spec that the model cannot have.
  virtual double FlopsShare(const std::string& spec) = 0;
  // Time to first token over dense's, the median of rounds in which all take turns with dense.
  virtual std::vector<double> Retime(const std::vector<std::string>& specs) = 0;
};

enum class Verdict {
  kMeets,   // within the budget on all samples
  kOver,    // cannot meet it
  kWaits,   // was overtaken by faster ones that do
  kAside,   // the method stood aside in every sample: it is dense
  kSlower,  // within the budget as far as it was followed, and not faster than the best
};

struct Candidate {
  std::string spec;
  double flops = 1;          // of dense's
  Quality quality;           // over the samples that it answered
  std::vector<double> ttft;  // over dense's, by sample
  bool active = false;       // in any sample
  Verdict verdict = Verdict::kWaits;
  std::optional<double> retimed;  // TTFT over dense's, where it was among the best few

  double ttft_ratio() const;  // retimed, or the median by sample; 1 where there is none
  double mean_kl() const;
};

// What a runner does in Retime.
inline constexpr size_t kRetimedSamples = 4;  // at most
inline constexpr int kRetimingRounds = 3;

struct SearchOptions {
  QualityBudget budget;
  size_t most_steps = 40;  // of refinement
  size_t finalists = 3;
};

struct SearchResult {
  std::vector<Candidate> tried;   // in the order of their verdicts, then of their times
  std::optional<size_t> best;     // of `tried`
  std::optional<size_t> nearest;  // where there is no best: what uses the least of the budget
  double dense_score = 0;         // mean
};

struct SearchProgress {
  std::string label;  // what is going on
  double share =
      0;  // of the work, by an estimate that never goes back: how far candidates get is known only then
};
using SearchNote = std::function<void(const SearchProgress& progress)>;

// `note` may be empty. Throws Error where the budget cannot be judged: a share of a dense score of 0.
SearchResult Search(const std::vector<std::string>& specs, const SearchOptions& options, TuneRunner& runner,
                    const SearchNote& note);

}  // namespace coppice
