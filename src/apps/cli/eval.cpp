// coppice eval: what each method costs in right answers, next to what it saves.
#include "eval/runner.h"

#include <fmt/core.h>

#include <cstdio>
#include <memory>

#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/terminal.h"
#include "base/error.h"

namespace coppice::cli {

namespace {

struct EvalCommand {
  ModelOptions model;
  EvalOptions eval;
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

std::string Cell(const nlohmann::ordered_json& row, const char* name, const char* format, double scale = 1) {
  const nlohmann::ordered_json& value = row[name];
  return value.is_number() ? fmt::format(fmt::runtime(format), scale * value.get<double>()) : "";
}

void PrintRows(const nlohmann::ordered_json& rows) {
  Table table(
      {"task", "length", "method", "score", "+-", "of dense", "n", "TTFT ms", "speed-up", "FLOPs", "KL"},
      {false, true, false, true, true, true, true, true, true, true, true});
  double dense = 0;
  for (const nlohmann::ordered_json& row : rows) {
    const auto prune = row["prune"].get<std::string>();
    const double score = row["score"].is_number() ? row["score"].get<double>() : 0;
    if (prune == "none") dense = score;
    const auto length = row["length"].get<int64_t>();
    const bool aside = prune != "none" && row["active"].get<int64_t>() == 0;
    table.Add({row["task"], length == 0 ? Cell(row, "prompt_tokens", "{:.0f}") : std::to_string(length),
               prune == "none" ? "dense"
               : aside         ? prune + " (stood aside)"
                               : prune,
               Cell(row, "score", "{:.1f}"), Cell(row, "score_error", "{:.1f}"),
               dense > 0 ? fmt::format("{:.0f} %", 100 * score / dense) : "", row["n"].dump(),
               Cell(row, "ttft_ms", "{:.0f}"), Cell(row, "speed_up", "{:.2f}x"),
               Cell(row, "flops_ratio", "{:.0f} %", 100), Cell(row, "kl", "{:.4f}")});
  }
  fmt::print("{}", table.Text());
}

void Eval(EvalCommand& o) {
  if (o.list) return PrintTasks();
  if (o.model.model.empty()) throw Error("--model is required");
  if (o.eval.folder.empty()) throw Error("-o FOLDER is required: results.json and samples.jsonl go there");
  for (const std::string& task : o.eval.tasks) FindTasks(task);  // before a model is loaded
  o.model.engine.time_operations = true;
  const std::unique_ptr<Engine> engine = Engine::Load(o.model.model, o.model.engine);
  ProgressLine line("eval", 1, "");
  const EvalResult result =
      Evaluate(o.eval, o.model.model, *engine, &Interrupted(), [&](const EvalProgress& progress) {
        line.SetLabel(progress.label);
        line.Update(progress.share);
      });
  line.Clear();
  PrintRows(result.rows);
  for (const std::string& reason : result.skipped) fmt::print("left out: {}\n", reason);
}

void AddTaskOptions(CLI::App& eval, EvalOptions& o) {
  eval.add_option("task", o.tasks, "tasks or groups of tasks; --list names them");
  eval.add_option("--prune", o.prune, "a method to compare with dense; may be repeated")->take_all();
  eval.add_option("--lengths", o.lengths, "tokens of prompt and answer, separated by commas")
      ->take_all()
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  eval.add_option("--samples", o.samples, "samples of each task and length, at most")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->capture_default_str();
  eval.add_option("-o,--output", o.folder,
                  "a folder for results.json and samples.jsonl; a run there goes on");
  eval.add_option("--data", o.data, "a folder with the data of tasks; may be repeated")->take_all();
  eval.add_option("--haystack", o.haystack, "a text file to hide things in; default: made sentences");
  eval.add_option("--depths", o.depths, "niah: places of the needle, from the start to the end")
      ->check(CLI::Range(int64_t{1}, int64_t{1000}))
      ->capture_default_str();
  eval.add_option("--needles", o.distractors, "niah: facts of the same form beside the one asked for")
      ->check(CLI::Range(int64_t{0}, int64_t{300}))
      ->capture_default_str();
  eval.add_option("--jieba", o.jieba,
                  "the folder of jieba's dict.txt, for Chinese metrics; default: python3-jieba's");
  eval.add_flag("--chat", o.chat, "prompts are messages of a user: apply the model's chat template");
  eval.add_option("-s,--seed", o.seed, "of samples")->capture_default_str();
  eval.add_option("--protect-first", o.protection.first,
                  "prompt tokens at the start that no method may prune")
      ->check(CLI::NonNegativeNumber);
  eval.add_option("--protect-last", o.protection.last, "prompt tokens at the end that no method may prune")
      ->check(CLI::NonNegativeNumber);
}

}  // namespace

void AddEval(CLI::App& app) {
  auto o = std::make_shared<EvalCommand>();
  CLI::App* eval = app.add_subcommand("eval", "quality and speed of methods on tasks with known answers");
  AddTaskOptions(*eval, o->eval);
  AddModelOptions(*eval, o->model, false);
  eval->add_flag("--list", o->list, "name every task");
  eval->footer(
      "Example:\n  coppice eval niah ruler -m model.gguf --lengths 4096,8192 --prune sliminfer --prune ftp "
      "-o results");
  eval->callback([o] {
    InstallInterruptHandler();
    Eval(*o);
  });
}

}  // namespace coppice::cli
