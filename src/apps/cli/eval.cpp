// coppice eval: the score of each method beside the time and FLOPs that it saves.
#include "eval/runner.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "apps/cli/commands.h"
#include "apps/cli/eval_options.h"
#include "apps/cli/eval_paper.h"
#include "apps/cli/options.h"
#include "apps/cli/terminal.h"
#include "base/error.h"
#include "eval/report/figures/figures.h"

namespace coppice::cli {

namespace {

struct EvalCommand {
  ModelOptions model;
  EvalOptions eval;
  PaperOptions paper;  // and the judge, without a paper too
  std::string key_variable;
  bool list = false;
};

void PrintTasks() {
  Table table({"task", "length", "data", "about"}, {false, false, false, false});
  for (const TaskInfo& task : Tasks()) {
    const char* const length = task.length == TaskLength::kMade  ? "--lengths"
                               : task.length == TaskLength::kCut ? "cut to --lengths"
                                                                 : "its own";
    table.Add({task.name, length, task.needs_data ? "--data" : "", task.about});
  }
  fmt::print("{}", table.Text());
}

std::string Cell(double value, const char* format) {
  return std::isfinite(value) ? fmt::format(fmt::runtime(format), value) : "";
}

void PrintRows(const std::vector<ResultRow>& rows) {
  Table table(
      {"task", "length", "method", "score", "95 %", "of dense", "n", "TTFT ms", "speed-up", "FLOPs", "KL"},
      {false, true, false, true, true, true, true, true, true, true, true});
  double dense = 0;
  for (const ResultRow& row : rows) {
    const double score = std::isfinite(row.score) ? row.score : 0;
    if (row.prune == "none") dense = score;
    table.Add({row.task, row.length == 0 ? Cell(row.prompt_tokens, "{:.0f}") : std::to_string(row.length),
               row.prune == "none" ? "dense"
               : row.StoodAside()  ? row.prune + " (stood aside)"
                                   : row.prune,
               Cell(row.score, "{:.1f}"), IntervalText(row.score_interval),
               dense > 0 ? fmt::format("{:.0f} %", 100 * score / dense) : "",
               std::to_string(row.n.value_or(0)), Cell(row.ttft_ms, "{:.0f}"), Cell(row.speed_up, "{:.2f}x"),
               Cell(100 * row.flops_ratio, "{:.0f} %"), Cell(row.kl, "{:.4f}")});
  }
  fmt::print("{}", table.Text());
}

void PrintVerdicts(const std::vector<ResultRow>& rows) {
  Table table({"task", "method", "win rate", "wins", "ties", "losses", "no verdict"},
              {false, false, true, true, true, true, true});
  bool any = false;
  for (const ResultRow& row : rows) {
    if (row.verdicts.size() != 4) continue;
    any = true;
    table.Add({row.task, row.prune == "none" ? "dense" : row.prune, Cell(row.win_rate, "{:.1f} %"),
               std::to_string(row.verdicts[0]), std::to_string(row.verdicts[1]),
               std::to_string(row.verdicts[2]), std::to_string(row.verdicts[3])});
  }
  fmt::print("{}", any ? "\nThe judge's verdicts, each answer in both orders\n" + table.Text()
                       : "the judge saw nothing: no task of this run has answers for one (leval_open has)\n");
}

// The key is read from the environment, so that it stands neither in the shell's history nor among the
// processes.
void TakeKey(const std::string& variable, ChatEndpoint& endpoint) {
  if (variable.empty()) return;
  const char* const key = std::getenv(variable.c_str());
  if (key == nullptr || *key == '\0')
    throw Error("--judge-key-env {}: the environment has no such variable", variable);
  endpoint.key = key;
}

void JudgeAndPrint(const EvalCommand& o, std::vector<ResultRow>& rows) {
  ProgressLine line("judge", 1, "");
  JudgeRun(
      o.eval.folder, o.paper.judge, &Interrupted(),
      [&](const std::string& label, double share) {
        line.SetLabel(label);
        line.Update(share);
      },
      rows);
  line.Clear();
  PrintVerdicts(rows);
}

void Eval(EvalCommand& o) {
  if (o.list) return PrintTasks();
  if (o.model.model.empty()) throw Error("--model is required");
  if (o.eval.folder.empty())
    throw Error("-o FOLDER is required: results.json, report.html and samples.jsonl go there");
  for (const std::string& task : o.eval.tasks) FindTasks(task);  // before a model is loaded
  TakeKey(o.key_variable, o.paper.judge.endpoint);
  if (o.paper.paper.empty()) {
    Check(o.paper.judge);
  } else {
    o.paper.eval = o.eval;
    Check(o.paper);  // the judge, too
  }
  o.model.engine.time_operations = true;
  const std::unique_ptr<Engine> engine = LoadEngine(o.model.model, o.model.engine);
  if (!o.paper.paper.empty()) return EvalPaper(o.paper, o.model.model, *engine);
  ProgressLine line("eval", 1, "");
  EvalResult result =
      Evaluate(o.eval, o.model.model, *engine, &Interrupted(), [&](const EvalProgress& progress) {
        line.SetLabel(progress.label);
        line.Update(progress.share);
      });
  line.Clear();
  PrintRows(result.rows);
  for (const std::string& note : AsideNotes(result.rows)) fmt::print("{}\n", note);
  for (const std::string& reason : result.skipped) fmt::print("left out: {}\n", reason);
  if (o.paper.judge.wanted()) JudgeAndPrint(o, result.rows);
}

void AddJudgeOptions(CLI::App& eval, EvalCommand& o) {
  JudgeOptions& judge = o.paper.judge;
  CLI::Option* url = eval.add_option("--judge", judge.endpoint.url,
                                     "an OpenAI-compatible endpoint, such as http://127.0.0.1:8080/v1, whose "
                                     "model compares the answers of leval_open with dense's");
  eval.add_option("--judge-model", judge.endpoint.model, "the judge's name there")->needs(url);
  eval.add_option("--judge-key-env", o.key_variable, "the environment variable that holds the endpoint's key")
      ->needs(url);
  eval.add_option(
          "--judge-against", judge.against,
          "compare with the answers of this file instead of dense's: JSON lines of L-Eval's predictions")
      ->needs(url);
}

}  // namespace

void AddEval(CLI::App& app) {
  auto o = std::make_shared<EvalCommand>();
  CLI::App* eval = app.add_subcommand("eval", "quality and speed of methods on tasks with known answers");
  eval->add_option("task", o->eval.tasks, "tasks or groups of tasks; --list names them");
  eval->add_option("--prune", o->eval.prune, "a method, or auto, to compare with dense; may be repeated")
      ->take_all();
  AddSampleOptions(*eval, o->eval);
  eval->add_option("-o,--output", o->eval.folder,
                   "a folder for results.json, report.html and samples.jsonl; resumes a run there");
  CLI::Option* paper = eval->add_option("--paper", o->paper.paper,
                                        "the tables of a paper, with its settings, beside its own figures; "
                                        "tasks replace LongBench's; lazyllm, ftp, sdtp, sliminfer");
  eval->add_option("--table", o->paper.table, "one table of the paper; default: all")->needs(paper);
  eval->add_option("--figure", o->paper.figure, "one figure of the paper, as a table and a picture")
      ->needs(paper);
  eval->add_option("--predictors", o->paper.predictors,
                   "the file of SDTP's predictors for this model, for the tables that need it")
      ->needs(paper);
  eval->add_option("--compressor", o->paper.compressor,
                   "the second model of prompt compression, for the tables that need it")
      ->needs(paper);
  eval->add_option("--classifier", o->paper.classifier,
                   "the folder of LLMLingua-2's classifier, for the tables that need it")
      ->needs(paper);
  eval->add_option("--small-classifier", o->paper.small_classifier, "the same of its small classifier")
      ->needs(paper);
  AddJudgeOptions(*eval, *o);
  AddModelOptions(*eval, o->model, false);
  eval->add_flag("--list", o->list, "list every task");
  eval->footer(
      "Example:\n  coppice eval niah ruler -m model.gguf --lengths 4096,8192 --prune sliminfer --prune ftp "
      "-o results\n  coppice eval --paper lazyllm --table 1 -m model.gguf --data LongBench -o lazyllm\n"
      "With --paper every sample of the data counts unless --samples is given.");
  eval->callback([o, eval, paper] {
    InstallInterruptHandler();
    if (paper->count() > 0 && eval->count("--samples") == 0) o->eval.samples = PaperRun::kAll;
    Eval(*o);
  });
}

}  // namespace coppice::cli
