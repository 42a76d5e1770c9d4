#include "eval/paper/paper_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/field_error.h"
#include "base/new_file.h"
#include "eval/data.h"
#include "eval/journal.h"
#include "eval/paper/paper_page.h"
#include "eval/summary.h"
#include "policies/registry.h"

namespace coppice {

namespace {

std::string NameOf(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  return name.empty() ? path : name;
}

PaperModel ModelOf(const PaperOptions& o, const ModelShape& shape) {
  return {.shape = shape,
          .predictors = o.predictors,
          .compressor = o.compressor,
          .classifier = o.classifier,
          .small_classifier = o.small_classifier};
}

std::string TableOf(const PaperOptions& o, const Paper& paper) {
  return o.figure.empty() ? o.table : FigureId(paper, o.figure);
}

bool Uses(const PaperTable& table, const std::string& run) {
  return std::any_of(table.groups.begin(), table.groups.end(),
                     [&](const PaperGroup& group) { return group.run == run; });
}

bool NeedsData(const PaperRun& run) {
  return std::any_of(run.tasks.begin(), run.tasks.end(),
                     [](const std::string& name) { return FindTasks(name).front()->needs_data; });
}

// Why the model cannot take a method, or "". Without a tokenizer here, no method opens a second model.
std::string Refusal(const std::string& spec, const Engine& engine, const Protection& protection) {
  try {
    MakePolicy(spec, {.shape = engine.model().config().shape, .tokens = engine.context()}, protection);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class PaperEvaluation {
 public:
  PaperEvaluation(const PaperOptions& options, const std::string& model, Engine& engine,
                  const std::atomic<bool>* cancelled,
                  const std::function<void(const EvalProgress&)>& progress)
      : options_(options),
        model_(model),
        engine_(engine),
        cancelled_(cancelled),
        progress_(progress),
        paper_(MakePaper(options.paper, ModelOf(options, engine.model().config().shape))) {
    AddMethods();
    if (!options.eval.tasks.empty()) ReplaceTasks(options.eval.tasks, paper_);
    if (!options.eval.lengths.empty()) ReplaceLengths(options.eval.lengths, paper_);
    table_ = TableOf(options, paper_);
    tables_ = TablesOf(paper_, table_);
    for (const PaperRun& run : paper_.runs) {
      const bool used = std::any_of(tables_.begin(), tables_.end(),
                                    [&](const PaperTable& table) { return Uses(table, run.name); });
      if (used) runs_.push_back(run);
    }
  }

  PaperResult All() {
    std::string without_data;
    size_t left_out = 0;
    for (; done_ < runs_.size(); ++done_) {
      try {
        RunOne(runs_[done_]);
      } catch (const MissingData& missing) {
        without_data = missing.what();
        notes_[runs_[done_].name].push_back("no data: " + without_data);
        ++left_out;
      } catch (const Cancelled&) {
        Recover(runs_[done_]);
        Finish();
        throw;
      }
    }
    if (left_out == runs_.size()) throw Error("{}", without_data);
    return Finish();
  }

 private:
  // The user's methods become lines of every table; methods that the model refuses become notes.
  void AddMethods() {
    for (PaperTable& table : paper_.tables) {
      for (const std::string& spec : options_.eval.prune)
        table.methods.push_back({.label = spec, .specs = {spec}});
      for (PaperMethod& method : table.methods) {
        for (const std::string& spec : method.specs) {
          const std::string refusal = Refusal(spec, engine_, options_.eval.protection);
          if (refusal.empty()) continue;
          method.missing = "cannot run on this model: " + refusal;
          method.specs.clear();
          break;
        }
      }
    }
  }

  // The methods of all tables that use the run, so that the folder serves each of them.
  std::vector<std::string> ArmsOf(const PaperRun& run) const {
    std::vector<std::string> arms;
    for (const PaperTable& table : paper_.tables) {
      if (!Uses(table, run.name)) continue;
      for (const PaperMethod& method : table.methods) {
        for (const std::string& spec : method.specs) {
          if (spec != "none" && std::find(arms.begin(), arms.end(), spec) == arms.end()) arms.push_back(spec);
        }
      }
    }
    return arms;
  }

  std::string FolderOf(const PaperRun& run) const {
    return fmt::format("{}/{}-{}", options_.eval.folder, paper_.name, run.name);
  }

  void RunOne(const PaperRun& run) {
    EvalOptions eval = options_.eval;
    eval.tasks = run.tasks;
    eval.prune = ArmsOf(run);
    eval.samples = std::min(options_.eval.samples, run.samples);
    eval.folder = FolderOf(run);
    eval.skip_missing = true;
    eval.lengths.clear();
    for (const int64_t length : run.lengths) {
      if (length <= engine_.context()) {
        eval.lengths.push_back(length);
      } else {
        notes_[run.name].push_back(
            fmt::format("{} tokens are not run: the context is {}", length, engine_.context()));
      }
    }
    if (!run.lengths.empty() && eval.lengths.empty()) return;
    if (eval.data.empty() && NeedsData(run))
      throw MissingData("{}: no folder of data is given", run.tasks.front());
    std::error_code failed;
    std::filesystem::create_directories(eval.folder, failed);
    if (failed) throw Error("[eval] {}: cannot make the folder: {}", eval.folder, failed.message());
    const auto show = [&](const EvalProgress& of_run) {
      if (progress_)
        progress_(
            {of_run.label, (static_cast<double>(done_) + of_run.share) / static_cast<double>(runs_.size())});
    };
    EvalResult result = Evaluate(eval, model_, engine_, cancelled_, show);
    Judge(run, show, result.rows);
    rows_[run.name] = std::move(result.rows);
    for (std::string& reason : result.skipped) notes_[run.name].push_back("no data: " + reason);
  }

  void Judge(const PaperRun& run, const std::function<void(const EvalProgress&)>& show,
             std::vector<ResultRow>& rows) {
    const bool asked = std::any_of(paper_.tables.begin(), paper_.tables.end(), [&](const PaperTable& table) {
      return Uses(table, run.name) && std::find(table.measures.begin(), table.measures.end(),
                                                PaperMeasure::kWinRate) != table.measures.end();
    });
    if (!asked) return;
    if (!options_.judge.wanted()) {
      notes_[run.name].push_back("no win rates: give `judge`, the address of a judge model");
      return;
    }
    JudgeRun(
        FolderOf(run), options_.judge, cancelled_,
        [&](const std::string& label, double share) {
          show({label, share});
        },
        rows);
  }

  // The rows of a run that was interrupted.
  void Recover(const PaperRun& run) {
    const std::string path = FolderOf(run) + "/samples.jsonl";
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return;
    rows_[run.name] = Summarize(ReadRecordedRun(path).records);
    KeepVerdicts(FolderOf(run), rows_[run.name]);
  }

  PaperResult Finish() {
    PaperResult result{.title = paper_.title, .sheets = {}, .page = {}};
    PaperPage page{.title = paper_.title, .model = NameOf(model_), .tables = {}, .reports = {}};
    for (const PaperTable& table : tables_) {
      std::vector<std::string> notes;
      for (const PaperRun& run : runs_) {
        if (!Uses(table, run.name)) continue;
        for (const std::string& note : notes_[run.name]) notes.push_back(note);
      }
      result.sheets.push_back(FillTable(table, rows_, NameOf(model_), notes));
      page.tables.push_back({result.sheets.back(), PaperFigure(table, rows_, NameOf(model_))});
    }
    for (const auto& [run, rows] : rows_)
      page.reports.push_back(fmt::format("{}-{}/report.html", paper_.name, run));
    result.page =
        fmt::format("{}/{}{}.html", options_.eval.folder, paper_.name, table_.empty() ? "" : "-" + table_);
    NewFile file(result.page, "eval");
    file.Append(PageText(page));
    file.Commit();
    return result;
  }

  const PaperOptions& options_;
  const std::string& model_;
  Engine& engine_;
  const std::atomic<bool>* cancelled_;
  const std::function<void(const EvalProgress&)>& progress_;
  Paper paper_;
  std::string table_;  // the id of the only one; empty: all
  std::vector<PaperTable> tables_;
  std::vector<PaperRun> runs_;  // that the tables use
  PaperRows rows_;
  std::map<std::string, std::vector<std::string>> notes_;  // by run
  size_t done_ = 0;                                        // of runs_
};

void ReplaceTall(const std::vector<int64_t>& lengths, PaperTable& table) {
  std::vector<PaperGroup> groups;
  for (const int64_t length : lengths) {
    const auto known = std::find_if(table.groups.begin(), table.groups.end(),
                                    [&](const PaperGroup& group) { return group.length == length; });
    groups.push_back(known != table.groups.end() ? *known : table.groups.front());
    if (known != table.groups.end()) continue;
    groups.back().length = length;
    groups.back().label = std::to_string(length);
  }
  if (table.groups.back().average) groups.push_back(table.groups.back());
  table.groups = std::move(groups);
}

// Categories become the tasks themselves, and whatever was of all tasks is of the new ones.
void ReplaceGroups(const std::vector<std::string>& tasks, const std::string& run, PaperTable& table) {
  std::vector<PaperGroup> groups;
  bool listed = false;
  for (const PaperGroup& group : table.groups) {
    const bool of_run = group.run == run;
    const bool category = of_run && (!table.wide || group.measure == PaperMeasure::kScore);
    if (!category) {
      groups.push_back(group);
      if (of_run) groups.back().tasks = tasks;
      continue;
    }
    for (const std::string& task : listed ? std::vector<std::string>{} : tasks)
      groups.push_back({.label = task, .run = run, .tasks = {task}});
    listed = true;
  }
  table.groups = std::move(groups);
  table.published.clear();
  table.source = "none: the tasks are not the paper's";
}

}  // namespace

void ReplaceLengths(const std::vector<int64_t>& lengths, Paper& paper) {
  for (PaperRun& run : paper.runs) {
    // A run of one length feeds one column, which gets the last; texts are cut to the last, too.
    run.lengths = run.lengths.size() > 1 ? lengths : std::vector<int64_t>{lengths.back()};
  }
  for (PaperTable& table : paper.tables) {
    if (!table.wide && table.groups.front().length > 0) {
      ReplaceTall(paper.Run(table.groups.front().run).lengths, table);
      continue;
    }
    for (PaperGroup& group : table.groups) {
      if (group.length == 0 || group.length == lengths.back()) continue;
      group.length = lengths.back();
      group.label += fmt::format(" published, {} here", lengths.back());
    }
  }
}

void ReplaceTasks(const std::vector<std::string>& names, Paper& paper) {
  std::vector<std::string> tasks;
  for (const std::string& name : names) {
    for (const TaskInfo* task : FindTasks(name)) tasks.push_back(task->name);
  }
  for (PaperRun& run : paper.runs) {
    if (run.tasks != LongBenchTasks()) continue;
    run.tasks = tasks;
    for (PaperTable& table : paper.tables) {
      if (Uses(table, run.name)) ReplaceGroups(tasks, run.name, table);
    }
  }
}

void Check(const PaperOptions& o) {
  if (!o.table.empty() && !o.figure.empty()) throw FieldError("figure", ": not together with a table");
  const Paper paper = MakePaper(o.paper, ModelOf(o, PaperModel().shape));
  TablesOf(paper, TableOf(o, paper));
  Check(o.judge);
}

PaperResult EvaluatePaper(const PaperOptions& options, const std::string& model, Engine& engine,
                          const std::atomic<bool>* cancelled,
                          const std::function<void(const EvalProgress& progress)>& progress) {
  Check(options);
  return PaperEvaluation(options, model, engine, cancelled, progress).All();
}

}  // namespace coppice
