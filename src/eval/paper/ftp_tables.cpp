// The tables of FTP (openreview fL8Zp8o6RL). Everywhere P = 100 first and N_q = 50 last tokens stay, and the
// first F = 10 layers are dense (sections 4.1 and 4.5).
#include <fmt/core.h>

#include <algorithm>

#include "eval/paper/paper.h"
#include "eval/task.h"
#include "policies/presets.h"

namespace coppice {

namespace {

constexpr const char* kTitle =
    "FTP: efficient prefilling for long-context LLM inference via FFN token pruning, openreview fL8Zp8o6RL";

// The paper's F, which it keeps for models of 28 layers and more.
int DenseLayers(const PaperModel& model, int layers) {
  return model.shape.layer_count() >= 28 ? layers
                                         : std::max(ScaledLayer(model.shape.layer_count(), layers), 1);
}

std::string Spec(const PaperModel& model, double eta, int dense = 10, const char* more = "") {
  return fmt::format("ftp:eta={:.2f},dense={}{},min=0", eta, DenseLayers(model, dense), more);
}

PaperMethod Eta(const PaperModel& model, double eta) {
  return {fmt::format("FTP, eta {:.2f}", eta), {Spec(model, eta)}};
}

// Tables 1 and 2: the dense model's score, FTP's, and FTP's TTFT speed-up.
struct FtpFigures {
  const char* group;
  double dense, ftp, speed_up;
};
struct FtpModelFigures {
  const char* model;
  const char* method;
  FtpFigures rows[6];
};
constexpr FtpModelFigures kTable1[] = {{"Llama3-8B-Instruct",
                                        "FTP, eta 0.90",
                                        {{"Single-document QA", 37.20, 36.06, 1.20},
                                         {"Multi-document QA", 36.85, 34.85, 1.21},
                                         {"Summarization", 26.80, 24.41, 1.19},
                                         {"Few-shot learning", 69.33, 67.55, 1.21},
                                         {"Synthetic", 37.00, 36.00, 1.25},
                                         {"Code completion", 55.17, 35.91, 1.19}}},
                                       {"Qwen2-7B-Instruct",
                                        "FTP, eta 0.95",
                                        {{"Single-document QA", 39.00, 38.75, 1.22},
                                         {"Multi-document QA", 37.48, 35.21, 1.26},
                                         {"Summarization", 26.70, 25.01, 1.23},
                                         {"Few-shot learning", 70.17, 69.11, 1.25},
                                         {"Synthetic", 37.50, 36.75, 1.30},
                                         {"Code completion", 58.43, 56.74, 1.22}}}};
constexpr FtpModelFigures kTable2[] = {{"Qwen1.5-32B-Chat",
                                        "FTP, eta 0.90",
                                        {{"Single-document QA", 40.68, 37.16, 1.37},
                                         {"Multi-document QA", 44.98, 42.06, 1.39},
                                         {"Summarization", 25.91, 23.78, 1.37},
                                         {"Few-shot learning", 66.99, 67.74, 1.40},
                                         {"Synthetic", 52.67, 46.25, 1.45},
                                         {"Code completion", 46.97, 46.63, 1.39}}},
                                       {"Qwen2-72B-Instruct",
                                        "FTP, eta 0.93",
                                        {{"Single-document QA", 43.78, 41.36, 1.31},
                                         {"Multi-document QA", 62.70, 60.92, 1.33},
                                         {"Summarization", 28.32, 26.80, 1.32},
                                         {"Few-shot learning", 69.87, 67.15, 1.33},
                                         {"Synthetic", 54.50, 51.00, 1.34},
                                         {"Code completion", 69.05, 68.35, 1.36}}}};

// The TTFT speed-ups of the methods that the paper compares with; PyramidInfer with its flash attention.
struct FtpCompared {
  const char* group;
  double pyramid_llama, pyramid_qwen, lingua_llama, lingua_qwen;
};
constexpr FtpCompared kCompared[] = {
    {"Single-document QA", 1.02, 1.21, 0.71, 0.98}, {"Multi-document QA", 0.97, 1.19, 0.72, 1.10},
    {"Summarization", 1.06, 1.20, 0.73, 1.01},      {"Few-shot learning", 0.97, 1.24, 0.82, 1.08},
    {"Synthetic", 0.94, 1.16, 0.66, 1.10},          {"Code completion", 1.10, 1.24, 0.69, 0.88}};

void AddPublished(const FtpModelFigures& of, PaperTable& table) {
  for (const FtpFigures& row : of.rows) {
    table.published.push_back({of.model, row.group, "Baseline", {row.dense, kNotGiven, kNotGiven}});
    table.published.push_back({of.model, row.group, of.method, {row.ftp, row.speed_up, kNotGiven}});
  }
}

PaperTable LongBench(const char* id, const char* title) {
  return {.id = id,
          .title = title,
          .source = "tables 1 and 2",
          .groups = LongBenchCategories("longbench"),
          .methods = {{"Baseline", {"none"}}},
          .measures = {PaperMeasure::kScore, PaperMeasure::kTtftSpeedUp, PaperMeasure::kTotalSpeedUp}};
}

PaperTable Table1(const PaperModel& model) {
  PaperTable table = LongBench("1", "LongBench, with the settings of the 7B and 8B models");
  table.methods.push_back(Eta(model, 0.90));
  table.methods.push_back(Eta(model, 0.95));
  table.methods.push_back({"PyramidInfer", {"pyramidinfer:min=0"}});
  table.methods.push_back(LlmLingua2("LLMLingua-2", "classifier", model.classifier, 0.2));
  for (const FtpModelFigures& of : kTable1) AddPublished(of, table);
  for (const FtpCompared& row : kCompared) {
    const auto add = [&](const char* of, const char* method, double speed_up) {
      table.published.push_back({of, row.group, method, {kNotGiven, speed_up, kNotGiven}});
    };
    add("Llama3-8B-Instruct", "PyramidInfer", row.pyramid_llama);
    add("Qwen2-7B-Instruct", "PyramidInfer", row.pyramid_qwen);
    add("Llama3-8B-Instruct", "LLMLingua-2", row.lingua_llama);
    add("Qwen2-7B-Instruct", "LLMLingua-2", row.lingua_qwen);
  }
  return table;
}

PaperTable Table2(const PaperModel& model) {
  PaperTable table = LongBench("2", "LongBench, with the settings of the 32B and 72B models");
  table.methods.push_back(Eta(model, 0.90));
  table.methods.push_back(Eta(model, 0.93));
  for (const FtpModelFigures& of : kTable2) AddPublished(of, table);
  return table;
}

PaperTable Table3(const PaperModel& model) {
  PaperTable table = LongBench("3", "The control: as many tokens, chosen at random");
  table.source = "table 3, of which only this figure is here";
  table.groups = LongBenchCategories("random");
  table.methods = {{"FTP, eta 0.95", {Spec(model, 0.95)}},
                   {"at random", {Spec(model, 0.95, 10, ",choose=random")}}};
  table.published = {{"Qwen2-7B-Instruct", "Synthetic", "FTP, eta 0.95", {36.75, kNotGiven, kNotGiven}},
                     {"Qwen2-7B-Instruct", "Synthetic", "at random", {1.71, kNotGiven, kNotGiven}}};
  return table;
}

// L-Eval's closed tasks: the task's name in the paper's order is its name in L-Eval.
const std::vector<std::string>& ClosedTasks() {
  static const std::vector<std::string> tasks = {"coursera", "gsm100", "quality", "tpo", "sci_fi", "codeU"};
  return tasks;
}

std::vector<std::string> LEvalTasks() {
  std::vector<std::string> tasks;
  for (const std::string& name : ClosedTasks()) tasks.push_back("leval/" + name);
  return tasks;
}

constexpr const char* kOpenTasks = "leval_open";

std::vector<std::string> OpenTasks() {
  std::vector<std::string> names;
  for (const TaskInfo* task : FindTasks(kOpenTasks)) names.push_back(task->name);
  return names;
}

PaperTable Table4(const PaperModel& model) {
  PaperTable table = LongBench("4", "L-Eval's closed tasks");
  table.source = "table 4, of which only these figures are here";
  table.note =
      "Instructions are worded anew, because L-Eval's texts are under the GPL; with a copy of its "
      "repository among the data, its own are read from there.";
  table.groups.clear();
  for (const std::string& name : ClosedTasks())
    table.groups.push_back({.label = name, .run = "leval", .tasks = {"leval/" + name}});
  table.groups.push_back({.label = "Average", .average = true});
  table.methods = {{"Baseline", {"none"}}, Eta(model, 0.90), Eta(model, 0.95)};
  table.published = {{"Llama3-8B-Instruct", "gsm100", "Baseline", {66, kNotGiven, kNotGiven}},
                     {"Llama3-8B-Instruct", "gsm100", "FTP, eta 0.90", {38, kNotGiven, kNotGiven}}};
  return table;
}

// L-Eval's open tasks under a judge model.
PaperTable Table5(const PaperModel& model) {
  PaperTable table = {
      .id = "5",
      .title = "L-Eval's open tasks, judged by a model",
      .source = "none here",
      .note =
          "The win rate is against the dense model's answers, or those of `judge_against`; 50 is "
          "as good. Instructions are worded anew, because L-Eval's texts are under the GPL.",
      .methods = {{"Baseline", {"none"}}, Eta(model, 0.90), Eta(model, 0.95)},
      .measures = {PaperMeasure::kWinRate, PaperMeasure::kScore, PaperMeasure::kTtftSpeedUp,
                   PaperMeasure::kTotalSpeedUp}};
  for (const TaskInfo* task : FindTasks(kOpenTasks))
    table.groups.push_back({.label = task->name.substr(std::string(kOpenTasks).size() + 1),
                            .run = "leval-open",
                            .tasks = {task->name}});
  table.groups.push_back({.label = "Average", .average = true});
  return table;
}

PaperTable Sweep(const char* id, const char* title, const char* note) {
  return {.id = id,
          .title = title,
          .source = "none here",
          .note = note,
          .wide = true,
          .groups = LongBenchColumns(id),
          .methods = {{"Baseline", {"none"}}}};
}

PaperTable KeptEnds(const PaperModel& model) {
  PaperTable table = Sweep("6", "One token kept at the start, or one query at the end (table 6)",
                           "The paper finds 5 to 10 points lost with either.");
  table.groups = LongBenchColumns("ends");
  table.methods.push_back({"P 100, N_q 50", {Spec(model, 0.95)}});
  table.methods.push_back({"P 1, N_q 50", {Spec(model, 0.95, 10, ",first=1")}});
  table.methods.push_back({"P 100, N_q 1", {Spec(model, 0.95, 10, ",last=1")}});
  return table;
}

PaperTable EtaSweep(const PaperModel& model) {
  PaperTable table = Sweep("eta", "The share of attention mass that runs the FFN",
                           "Published TTFT speed-ups of Qwen2-7B-Instruct, by task: 1.48 to 1.55 with 0.65, "
                           "1.44 to 1.52 with 0.75, 1.37 to 1.46 with 0.85, 1.22 to 1.30 with 0.95.");
  for (const double eta : {0.65, 0.75, 0.85, 0.95}) table.methods.push_back(Eta(model, eta));
  return table;
}

PaperTable DenseSweep(const PaperModel& model) {
  PaperTable table =
      Sweep("dense", "The number of layers that stay dense, with eta 0.90",
            "Published TTFT speed-ups, by task: 1.42 to 1.51 with F = 4, 1.31 to 1.40 with F = "
            "10. F of a small model is scaled.");
  int last = -1;
  for (const int dense : {4, 6, 8, 10}) {
    if (DenseLayers(model, dense) == last) continue;
    last = DenseLayers(model, dense);
    table.methods.push_back({fmt::format("F {}", last), {Spec(model, 0.90, dense)}});
  }
  return table;
}

PaperTable HeatMap(const PaperModel& model) {
  return {.id = "heat-map",
          .title = "Heat map: which tokens run the FFN, by layer and place",
          .source = "none here; the paper's own heat map could not be read",
          .note = "Of Kamradt's needle, whose text is made to the length.",
          .groups = {{.label = "8k", .run = "heat-map", .tasks = {"kamradt"}, .length = 8192}},
          .methods = {{"Baseline", {"none"}}, Eta(model, 0.90), Eta(model, 0.95)},
          .measures = {PaperMeasure::kScore, PaperMeasure::kFlopsRatio},
          .drawing = PaperDrawing::kFfns};
}

}  // namespace

Paper FtpPaper(const PaperModel& model) {
  Paper paper{
      .name = "ftp",
      .title = kTitle,
      .runs = {{.name = "leval", .tasks = LEvalTasks()}, {.name = "leval-open", .tasks = OpenTasks()}},
      .tables = {}};
  for (const char* run : {"longbench", "random", "ends", "eta", "dense"})
    paper.runs.push_back({.name = run, .tasks = LongBenchTasks()});
  paper.runs.push_back({.name = "heat-map", .tasks = {"kamradt"}, .lengths = {8192}, .samples = 3});
  paper.tables = {Table1(model),   Table2(model),   Table3(model),     Table4(model), Table5(model),
                  KeptEnds(model), EtaSweep(model), DenseSweep(model), HeatMap(model)};
  return paper;
}

}  // namespace coppice
