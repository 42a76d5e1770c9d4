// Evaluates a paper's tables on a model: its runs, then its tables as text and as a page.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "eval/judge/judge.h"
#include "eval/paper/sheet.h"
#include "eval/runner.h"

namespace coppice {

struct PaperOptions {
  std::string paper;            // "lazyllm"
  std::string table = {};       // empty: all of them
  std::string figure = {};      // instead of a table: "8", "heat-map"
  std::string predictors = {};  // a file of SDTP's predictors for the model
  std::string compressor = {};  // the second model of prompt compression
  std::string classifier = {};  // the folder of LLMLingua-2's classifier, and of its small one
  std::string small_classifier = {};
  JudgeOptions judge = {};  // for FTP's table 5
  // `tasks` replaces LongBench's data sets, which the user may not have. `prune` adds methods, `lengths`
  // replaces the lengths of the tables, `samples` bounds theirs. Each run gets a folder in `folder`.
  EvalOptions eval = {};
};

// Throws FieldError for a paper or a table that does not exist, and for options that a paper decides.
void Check(const PaperOptions& options);

struct PaperResult {
  std::string title;
  std::vector<PaperSheet> sheets;
  std::string page;  // the path of the page
};

// Resumes like Evaluate. A run without data, a length beyond the context and a method that the model cannot
// take leave their cells empty, and a note says why. Throws Error if no run of the tables has data, and
// Cancelled; the page then has what was answered before.
PaperResult EvaluatePaper(const PaperOptions& options, const std::string& model, Engine& engine,
                          const std::atomic<bool>* cancelled,
                          const std::function<void(const EvalProgress& progress)>& progress);

// For tests: the paper's lengths, and the data sets of LongBench, replaced by a user's.
void ReplaceTasks(const std::vector<std::string>& names, Paper& paper);
void ReplaceLengths(const std::vector<int64_t>& lengths, Paper& paper);

}  // namespace coppice
