// coppice tune: the fastest schedule within a quality budget, as a --prune spec.
#include "eval/tune/tune.h"

#include <fmt/core.h>

#include <chrono>
#include <memory>

#include "apps/cli/commands.h"
#include "apps/cli/eval_options.h"
#include "apps/cli/options.h"
#include "apps/cli/terminal.h"
#include "base/error.h"
#include "base/new_file.h"

namespace coppice::cli {

namespace {

struct TuneCommand {
  ModelOptions model;
  TuneOptions tune;
  std::string budget;
  std::string out;
  bool all = false;
};

constexpr size_t kShownRows = 12;

double Percent(double sum, size_t samples) {
  return samples == 0 ? 0 : 100 * sum / static_cast<double>(samples);
}

void PrintTried(const SearchResult& result, bool all) {
  Table table({"spec", "score", "of dense", "KL", "TTFT", "FLOPs", "samples", ""},
              {false, true, true, true, true, true, true, false});
  size_t shown = 0, left_out = 0;
  for (const Candidate& c : result.tried) {
    if (c.quality.samples == 0) continue;
    if (!all && shown == kShownRows) {
      ++left_out;
      continue;
    }
    ++shown;
    const Quality& q = c.quality;
    table.Add({c.spec, fmt::format("{:.1f}", Percent(q.score, q.samples)),
               q.dense_score > 0 ? fmt::format("{:.1f} %", 100 * q.score / q.dense_score) : "",
               fmt::format("{:.4f}", c.mean_kl()),
               fmt::format("{:.0f} %{}", 100 * c.ttft_ratio(), c.retimed ? "" : " ?"),
               fmt::format("{:.0f} %", 100 * c.flops), std::to_string(q.samples), VerdictText(c.verdict)});
  }
  fmt::print("{}", table.Text());
  if (left_out > 0) fmt::print("and {} more: --all, or tune.json\n", left_out);
  fmt::print("TTFT and FLOPs are shares of dense's; '?' was not timed again. Dense scores {:.1f}.\n",
             100 * result.dense_score);
}

[[noreturn]] void Refuse(const SearchResult& result, const QualityBudget& budget) {
  if (!result.nearest) throw Error("nothing meets the budget of {}: no candidate was run", budget.Text());
  const Candidate& c = result.tried[*result.nearest];
  const Quality& q = c.quality;
  if (Meets(budget, q))
    throw Error("nothing meets the budget of {} and is faster than dense: {} takes {:.0f} % of its time",
                budget.Text(), c.spec, 100 * c.ttft_ratio());
  throw Error(
      "nothing meets the budget of {}: the nearest is {}, with {} of the dense score and KL {:.4f} on {} "
      "samples",
      budget.Text(), c.spec,
      q.dense_score > 0 ? fmt::format("{:.1f} %", 100 * q.score / q.dense_score) : "nothing", c.mean_kl(),
      q.samples);
}

void Tune(TuneCommand& o) {
  o.tune.search.budget = ParseBudget(o.budget);  // before a model is loaded
  for (const std::string& task : o.tune.eval.tasks) FindTasks(task);
  const std::unique_ptr<Engine> engine = Engine::Load(o.model.model, o.model.engine);
  ProgressLine line("tune", 1, "");
  const SearchResult result =
      coppice::Tune(o.tune, o.model.model, *engine, &Interrupted(), [&](const SearchProgress& progress) {
        line.SetLabel("tune  " + progress.label);
        line.Update(progress.share);
      });
  line.Clear();
  PrintTried(result, o.all);
  if (!result.best) Refuse(result, o.tune.search.budget);
  const std::string& spec = result.tried[*result.best].spec;
  if (!o.out.empty()) {
    NewFile file(o.out, "tune");
    file.Append(spec + "\n");
    file.Commit();
  }
  fmt::print("{}\n", spec);
}

}  // namespace

void AddTune(CLI::App& app) {
  auto o = std::make_shared<TuneCommand>();
  CLI::App* tune = app.add_subcommand("tune", "find the fastest schedule within a quality budget");
  tune->add_option("--tasks", o->tune.eval.tasks,
                   "tasks or groups of tasks, separated by commas: eval --list")
      ->take_all()
      ->delimiter(',')
      ->required();
  tune->add_option("--budget", o->budget,
                   "1%: of the dense score; kl=0.05: mean divergence in nats; or both: 1%,kl=0.05")
      ->required();
  tune->add_option("--methods", o->tune.methods,
                   "what to try, may be repeated: a method, or several joined by +; keys that are given stay")
      ->take_all();
  AddSampleOptions(*tune, o->tune.eval);
  tune->add_option("-o,--output", o->tune.eval.folder,
                   "a folder for tune.jsonl and tune.json; a run there goes on")
      ->required();
  tune->add_option("--out", o->out, "a file that gets the spec");
  tune->add_flag("--all", o->all, "print every candidate that was run");
  AddModelOptions(*tune, o->model);
  tune->footer(
      "The last line of the output is the spec, for --prune. Where nothing meets the budget, the exit code "
      "is 1.\n"
      "Example:\n  coppice tune -m model.gguf --tasks niah,ruler/vt --lengths 8192 --budget 1% -o tuned");
  tune->callback([o] {
    InstallInterruptHandler();
    Tune(*o);
  });
}

}  // namespace coppice::cli
