#include "eval/paper/paper.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "base/field_error.h"
#include "policies/presets.h"
#include "policies/spec.h"

namespace coppice {

namespace {

struct PaperMaker {
  std::string_view name;
  Paper (*make)(const PaperModel& model);
};
constexpr PaperMaker kPapers[] = {
    {"lazyllm", LazyLlmPaper}, {"ftp", FtpPaper}, {"sdtp", SdtpPaper}, {"sliminfer", SlimInferPaper}};

// LongBench's table of task types (README.md of https://github.com/THUDM/LongBench), without Chinese.
struct LongBenchCategory {
  const char* label;
  std::vector<std::string> tasks;
};
const std::vector<LongBenchCategory>& Categories() {
  static const std::vector<LongBenchCategory> categories = {
      {"Single-document QA", {"longbench/narrativeqa", "longbench/qasper", "longbench/multifieldqa_en"}},
      {"Multi-document QA", {"longbench/hotpotqa", "longbench/2wikimqa", "longbench/musique"}},
      {"Summarization", {"longbench/gov_report", "longbench/qmsum", "longbench/multi_news"}},
      {"Few-shot learning", {"longbench/trec", "longbench/triviaqa", "longbench/samsum"}},
      {"Synthetic", {"longbench/passage_count", "longbench/passage_retrieval_en"}},
      {"Code completion", {"longbench/lcc", "longbench/repobench-p"}}};
  return categories;
}

std::string ListOf(const std::vector<std::string>& items) {
  std::string list;
  for (const std::string& item : items) list += (list.empty() ? "" : ", ") + item;
  return list;
}

}  // namespace

const PaperRun& Paper::Run(std::string_view run) const {
  const auto found = std::find_if(runs.begin(), runs.end(), [&](const PaperRun& r) { return r.name == run; });
  COPPICE_CHECK(found != runs.end());
  return *found;
}

Paper MakePaper(std::string_view name, const PaperModel& model) {
  std::vector<std::string> names;
  for (const PaperMaker& paper : kPapers) {
    if (paper.name == name) return paper.make(model);
    names.emplace_back(paper.name);
  }
  throw FieldError("paper", " {}: there are {}", name, ListOf(names));
}

std::vector<PaperTable> TablesOf(const Paper& paper, std::string_view id) {
  if (id.empty()) return paper.tables;
  std::vector<std::string> ids;
  for (const PaperTable& table : paper.tables) {
    if (table.id == id) return {table};
    ids.push_back(table.id);
  }
  throw FieldError("table", " {}: {} has {}", id, paper.name, ListOf(ids));
}

PaperMethod LlmLingua2(const char* label, const char* field, const std::string& folder, double keep) {
  PaperMethod method{.label = label};
  if (folder.empty()) {
    method.missing = fmt::format("needs its published classifier: give its folder as `{}`", field);
  } else {
    method.specs = {fmt::format("llmlingua2:model={},keep={},min=0", QuotedValue(folder), keep)};
  }
  return method;
}

std::string FigureId(const Paper& paper, std::string_view figure) {
  constexpr std::string_view kNumbered = "figure-";
  std::vector<std::string> figures;
  for (const PaperTable& table : paper.tables) {
    if (table.drawing == PaperDrawing::kSpeedUps) continue;
    const bool numbered = table.id.starts_with(kNumbered);
    figures.push_back(numbered ? table.id.substr(kNumbered.size()) : table.id);
    if (figures.back() == figure) return table.id;
  }
  throw FieldError("figure", " {}: {} has {}", figure, paper.name, ListOf(figures));
}

std::vector<std::string> LongBenchTasks() {
  std::vector<std::string> all;
  for (const LongBenchCategory& category : Categories())
    all.insert(all.end(), category.tasks.begin(), category.tasks.end());
  return all;
}

std::vector<PaperGroup> LongBenchCategories(const std::string& run) {
  std::vector<PaperGroup> groups;
  for (const LongBenchCategory& category : Categories())
    groups.push_back({.label = category.label, .run = run, .tasks = category.tasks});
  groups.push_back({.label = "Macro-average", .average = true});
  return groups;
}

std::vector<PaperGroup> LongBenchColumns(const std::string& run) {
  std::vector<PaperGroup> columns = LongBenchCategories(run);
  columns.push_back(
      {.label = "TTFT x", .run = run, .tasks = LongBenchTasks(), .measure = PaperMeasure::kTtftSpeedUp});
  columns.push_back({.label = "end to end x",
                     .run = run,
                     .tasks = LongBenchTasks(),
                     .measure = PaperMeasure::kTotalSpeedUp});
  return columns;
}

std::vector<int> SweepLayers(const PaperModel& model) {
  std::vector<int> layers;
  for (const int layer : {5, 10, 15, 20, 25, 30}) {
    const int scaled = std::max(ScaledLayer(model.shape.layer_count(), layer), 1);
    if (scaled < model.shape.layer_count() && (layers.empty() || scaled != layers.back()))
      layers.push_back(scaled);
  }
  return layers;
}

PaperTable OneStage(const char* figure, const char* title, const char* dense, const std::string& run) {
  return {.id = fmt::format("figure-{}", figure),
          .title = title,
          .source = fmt::format("figure {} has curves without numbers", figure),
          .note = "Layers of 32, scaled to this model's. The dashed line is dense.",
          .wide = true,
          .groups = LongBenchColumns(run),
          .methods = {{dense, {"none"}}},
          .drawing = PaperDrawing::kCurves};
}

}  // namespace coppice
