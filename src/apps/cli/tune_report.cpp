#include "apps/cli/tune_report.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "apps/cli/terminal.h"
#include "base/error.h"
#include "eval/report/sweeps.h"

namespace coppice::cli {

namespace {

double Percent(double sum, size_t samples) {
  return samples == 0 ? 0 : 100 * sum / static_cast<double>(samples);
}

void PrintTasks(const RangeResult& range) {
  fmt::print("{} tokens (serves prompts of {} to {})\n", range.length, range.min_tokens, range.max_tokens);
  for (const TaskUse& task : range.tasks) {
    if (task.used) {
      fmt::print("  {}: dense scores {:.1f} on {} samples\n", task.task, 100 * task.dense_score,
                 task.samples);
    } else {
      fmt::print("  {}: left out: {}\n", task.task, task.why);
    }
  }
}

std::string HeldOutText(const HeldOut& held_out) {
  const Interval loss = held_out.loss_interval();
  const Quality& q = held_out.quality;
  return fmt::format("{:.1f} of {:.1f}, loss {:.1f} % ({:.1f} to {:.1f}), n={}", Percent(q.score, q.samples),
                     Percent(q.dense_score, q.samples), 100 * held_out.loss(), 100 * loss.low,
                     100 * loss.high, q.samples);
}

void PrintPicks(const RangeResult& range, const QualityBudget& budget) {
  fmt::print("\nWithin {}, on samples that the search has not seen:\n", budget.Text());
  Table table({"method", "TTFT", "FLOPs", "KL", "held-out score, loss (95 %)"},
              {false, true, true, true, false});
  std::string settings;  // below the table, because they would make it too wide
  const Pick* best = BestPick(range.picks, budget, range.search);
  for (const Pick& pick : range.picks) {
    if (pick.budget != budget) continue;
    if (!pick.chosen) continue;
    const Candidate& c = range.search.tried[*pick.chosen];
    table.Add(
        {(&pick == best ? "* " : "") + pick.method, fmt::format("{:.0f} %", 100 * c.cost->ttft),
         fmt::format("{:.0f} %", 100 * c.cost->flops),
         fmt::format("{:.4f}", pick.held_out.quality.kl / static_cast<double>(pick.held_out.quality.samples)),
         HeldOutText(pick.held_out)});
    settings += fmt::format("{}: {}\n", pick.method, c.spec);
  }
  if (!settings.empty()) fmt::print("{}{}", table.Text(), settings);
  for (const Pick& pick : range.picks) {
    if (pick.budget != budget) continue;
    if (!pick.chosen) fmt::print("{}: none: {}\n", pick.method, pick.why);
    for (const Pick::Rejected& r : pick.rejected)
      fmt::print("rejected: {}: {}\n", range.search.tried[r.candidate].spec, HeldOutText(r.held_out));
  }
}

// Keys that all settings of a method share are left out; tune.json has them.
void PrintTried(const SearchResult& result) {
  std::vector<std::string> specs;
  for (const Candidate& c : result.tried) specs.push_back(c.spec);
  const std::vector<std::string> names = ShortNames(specs);
  Table table({"setting", "score", "of dense", "KL", "planned FLOPs", "samples", ""},
              {false, true, true, true, true, true, false});
  for (size_t i = 0; i < result.tried.size(); ++i) {
    const Candidate& c = result.tried[i];
    const Quality& q = c.quality;
    if (q.samples == 0) continue;
    table.Add({names[i], fmt::format("{:.1f}", Percent(q.score, q.samples)),
               q.dense_score > 0 ? fmt::format("{:.1f} %", 100 * q.score / q.dense_score) : "",
               fmt::format("{:.4f}", c.mean_kl()), fmt::format("{:.0f} %", 100 * c.flops),
               std::to_string(q.samples), VerdictText(c.verdict)});
  }
  fmt::print("\nOn the samples of the search:\n{}", table.Text());
}

// What the tried settings say about those that were not found: none at this cost kept more.
void PrintFrontier(const SearchResult& result) {
  const std::vector<size_t> frontier = result.Frontier();
  if (frontier.empty()) return;
  Table table({"FLOPs", "keeps at most", "samples", "setting"}, {true, true, true, false});
  for (const size_t i : frontier) {
    const Candidate& c = result.tried[i];
    table.Add({fmt::format("{:.0f} %", 100 * c.flops), fmt::format("{:.1f} %", 100 * result.KeepsAtMost(c)),
               std::to_string(c.quality.samples), c.spec});
  }
  fmt::print(
      "\nThe frontier, on the samples of the search: no tried setting of fewer FLOPs keeps more.\n{}\n",
      table.Text());
}

std::string WhyNone(const RangeResult& range, const QualityBudget& budget) {
  if (!range.why.empty()) return range.why;
  for (const Pick& pick : range.picks) {
    if (pick.budget == budget && pick.chosen) {
      const Candidate& c = range.search.tried[*pick.chosen];
      return fmt::format("and is faster than dense: {} takes {:.0f} % of its time", c.spec,
                         100 * c.cost->ttft);
    }
  }
  return fmt::format("at {} tokens no setting kept it; {}", range.length, HowFar(range));
}

}  // namespace

void PrintTuned(const TuneResult& result, const std::vector<QualityBudget>& budgets, bool all) {
  for (const std::string& skipped : result.skipped) fmt::print("left out: {}\n", skipped);
  for (const RangeResult& range : result.ranges) {
    PrintTasks(range);
    if (!range.why.empty()) {
      fmt::print("  {}\n", range.why);
      continue;
    }
    if (all) PrintTried(range.search);
    for (const QualityBudget& budget : budgets) PrintPicks(range, budget);
    PrintFrontier(range.search);
    if (!range.search.untried.empty())
      fmt::print("There was no time to try {}.\n", fmt::join(range.search.untried, ", "));
    fmt::print("{} tokens: {}.\n\n", range.length, HowFar(range));
  }
}

std::string BestSpec(const TuneResult& result, const std::vector<QualityBudget>& budgets) {
  for (const QualityBudget& budget : budgets) {
    for (auto range = result.ranges.rbegin(); range != result.ranges.rend(); ++range) {
      if (const Pick* best = BestPick(range->picks, budget, range->search))
        return range->search.tried[*best->chosen].spec;
    }
  }
  throw Error("nothing meets the budget of {}: {}", budgets.front().Text(),
              WhyNone(result.ranges.back(), budgets.front()));
}

void PrintProxies(const FfnProxyResult& made, int64_t tokens) {
  fmt::print("reference of {} tokens: {} calibrate, {} are held out; {} channels, rank {}\n\n", tokens,
             made.calibrated, made.held_out, made.channels, made.rank);
  fmt::print("||f(x)|| against ||F(x)|| on the held-out tokens:\n");
  Table table({"layer", "rank correlation", "of the largest 40 %"}, {false, true, true});
  const auto add = [&](const std::string& name, double rho, double overlap) {
    table.Add({name, fmt::format("{:.3f}", rho), fmt::format("{:.0f} %", 100 * overlap)});
  };
  std::vector<double> rhos;
  std::vector<double> overlaps;
  for (const FfnProxyAgreement& layer : made.layers) {
    add(std::to_string(rhos.size()), layer.rho, layer.overlap);
    rhos.push_back(layer.rho);
    overlaps.push_back(layer.overlap);
  }
  std::sort(rhos.begin(), rhos.end());
  std::sort(overlaps.begin(), overlaps.end());
  add("least", rhos.front(), overlaps.front());
  add("median", rhos[rhos.size() / 2], overlaps[overlaps.size() / 2]);
  add("chance", 0, 0.4);
  fmt::print("{}", table.Text());
}

}  // namespace coppice::cli
