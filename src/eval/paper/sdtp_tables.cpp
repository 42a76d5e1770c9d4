// The tables of SDTP (arXiv 2504.04514v2). Its predictors are trained for a model, so its lines need a file.
#include <fmt/core.h>

#include "eval/paper/paper.h"
#include "policies/spec.h"

namespace coppice {

namespace {

constexpr const char* kTitle =
    "Saliency-driven dynamic token pruning for large language models, arXiv 2504.04514";

PaperMethod Sdtp(const PaperModel& model, const char* label, const char* preset, const char* more = "") {
  PaperMethod method{.label = label};
  if (model.predictors.empty()) {
    method.missing = "needs predictors trained for this model: give `predictors`";
  } else {
    method.specs = {
        fmt::format("sdtp:file={},preset={},min=0{}", QuotedValue(model.predictors), preset, more)};
  }
  return method;
}

// Table 2: Mistral-7B-Instruct-v0.2, 128 generated tokens: TFLOPs, seconds of the prefill, seconds in all and
// memory in GB; the ratios are the paper's, too.
struct SdtpByLength {
  int64_t length;
  double dense[4];
  double sdtp[4];
  double prefill_ratio, total_ratio;
};
constexpr SdtpByLength kTable2[] = {
    {4096, {72.51, 0.31, 3.70, 15.55}, {47.81, 0.20, 3.43, 15.04}, 1.52, 1.08},
    {8192, {158.22, 0.64, 4.85, 17.10}, {102.01, 0.40, 3.98, 15.86}, 1.58, 1.22},
    {16384, {369.22, 1.40, 7.17, 20.20}, {229.41, 0.84, 5.46, 17.55}, 1.67, 1.31},
    {32768, {949.54, 3.40, 13.63, 26.41}, {560.40, 1.90, 8.95, 20.95}, 1.79, 1.52},
    {65536, {2743.46, 9.33, 27.75, 39.31}, {1526.98, 4.99, 16.92, 28.24}, 1.87, 1.64},
    {131072, {8864.49, 29.30, 63.69, 65.13}, {4678.81, 13.60, 36.35, 42.82}, 2.15, 1.75}};

PaperTable Table2(const PaperModel& model) {
  PaperTable table{
      .id = "2",
      .title = "FLOPs, times and memory by prompt length, with 128 tokens behind it",
      .source = "table 2, of Mistral-7B-Instruct-v0.2",
      .note =
          "The paper counts attention over N x N scores as 1.5 times causal attention; the "
          "ledger counts what runs.",
      .methods = {{"Dense", {"none"}}, Sdtp(model, "SDTP", "file")},
      .measures = {PaperMeasure::kTeraFlops, PaperMeasure::kTtftSeconds, PaperMeasure::kTtftSpeedUp,
                   PaperMeasure::kTotalSeconds, PaperMeasure::kTotalSpeedUp, PaperMeasure::kMemoryGib}};
  for (const SdtpByLength& row : kTable2) {
    const std::string label = fmt::format("{}K", row.length / 1024);
    table.groups.push_back(
        {.label = label, .run = "lengths", .tasks = {"continue/128"}, .length = row.length});
    const auto add = [&](const char* method, const double(&v)[4], double prefill, double total) {
      table.published.push_back(
          {"Mistral-7B-Instruct-v0.2", label, method, {v[0], v[1], prefill, v[2], total, v[3]}});
    };
    add("Dense", row.dense, kNotGiven, kNotGiven);
    add("SDTP", row.sdtp, row.prefill_ratio, row.total_ratio);
  }
  return table;
}

// Values of a wide LongBench table: the six categories are not here, then their mean, TTFT and end to end.
std::vector<double> Averages(double score, double prefill = kNotGiven, double total = kNotGiven) {
  return {kNotGiven, kNotGiven, kNotGiven, kNotGiven, kNotGiven, kNotGiven, score, prefill, total};
}

PaperTable LongBench(const PaperModel& model) {
  const std::string mistral = "Mistral-7B-Instruct-v0.2";
  return {
      .id = "longbench",
      .title = "LongBench",
      .source = "the paper's means; its figures by category are not here",
      .note = "LLMLingua-2 keeps 35 % of the tokens, as SDTP does at its end; the paper's rate is not known.",
      .wide = true,
      .groups = LongBenchColumns("longbench"),
      .methods = {{"Dense", {"none"}},
                  Sdtp(model, "SDTP", "file"),
                  Sdtp(model, "SDTP-low", "low"),
                  LlmLingua2("LLMLingua-2", "classifier", model.classifier, 0.35),
                  LlmLingua2("LLMLingua-2-small", "small_classifier", model.small_classifier, 0.35)},
      .published = {{mistral, "", "Dense", Averages(42.34)},
                    {mistral, "", "SDTP", Averages(39.82, 1.71, 1.31)},
                    {mistral, "", "SDTP-low", Averages(40.98, 1.37, 1.10)},
                    {mistral, "", "LLMLingua-2", Averages(35.16, 0.83)},
                    {mistral, "", "LLMLingua-2-small", Averages(33.94, 1.16)}}};
}

struct SdtpFewShot {
  const char* label;
  const char* task;
};
constexpr SdtpFewShot kFewShot[] = {
    {"COPA", "fewshot/copa"},     {"PIQA", "fewshot/piqa"},   {"Winogrande", "fewshot/winogrande"},
    {"MathQA", "fewshot/mathqa"}, {"BoolQ", "fewshot/boolq"}, {"CB", "fewshot/cb"},
    {"WiC", "fewshot/wic"},       {"WSC", "fewshot/wsc"}};

std::vector<std::string> FewShotTasks() {
  std::vector<std::string> tasks;
  for (const SdtpFewShot& task : kFewShot) tasks.emplace_back(task.task);
  return tasks;
}

// Eight tasks, their mean, and the ratio of FLOPs.
std::vector<double> Mean(double score) {
  return {kNotGiven, kNotGiven, kNotGiven, kNotGiven, kNotGiven,
          kNotGiven, kNotGiven, kNotGiven, score,     kNotGiven};
}

PaperTable FewShotTable(const PaperModel& model) {
  PaperTable table{.id = "fewshot",
                   .title = "Eight tasks with five shots",
                   .source = "the paper's means; its figures by task are not here",
                   .note = "The paper's last two lines combine SDTP with H2O's cache of 40 %.",
                   .wide = true,
                   .methods = {{"Dense", {"none"}},
                               Sdtp(model, "SDTP", "file"),
                               Sdtp(model, "SDTP + H2O", "file", "+h2o:keep=0.4,min=0")}};
  for (const SdtpFewShot& task : kFewShot)
    table.groups.push_back({.label = task.label, .run = "fewshot", .tasks = {task.task}});
  table.groups.push_back({.label = "Average", .average = true});
  table.groups.push_back(
      {.label = "FLOPs x", .run = "fewshot", .tasks = FewShotTasks(), .measure = PaperMeasure::kFlopsRatio});
  const struct {
    const char* model;
    double dense, sdtp;
  } rows[] = {{"Llama2-7B", 58.62, 59.88}, {"Mistral-7B", 71.39, 71.24}, {"BLOOM-7B", 54.03, 53.90}};
  for (const auto& row : rows) {
    table.published.push_back({row.model, "", "Dense", Mean(row.dense)});
    table.published.push_back({row.model, "", "SDTP", Mean(row.sdtp)});
  }
  return table;
}

PaperTable HeatMap(const PaperModel& model) {
  return {.id = "heat-map",
          .title = "Heat map: which tokens each layer computes, by layer and place",
          .source = "none here; the paper's own heat map could not be read",
          .note = "Of Kamradt's needle, whose text is made to the length.",
          .groups = {{.label = "8k", .run = "heat-map", .tasks = {"kamradt"}, .length = 8192}},
          .methods = {{"Dense", {"none"}}, Sdtp(model, "SDTP", "file"), Sdtp(model, "SDTP-low", "low")},
          .measures = {PaperMeasure::kScore, PaperMeasure::kFlopsRatio},
          .drawing = PaperDrawing::kKeys};
}

}  // namespace

Paper SdtpPaper(const PaperModel& model) {
  PaperRun lengths{.name = "lengths", .tasks = {"continue/128"}, .samples = 3};
  for (const SdtpByLength& row : kTable2) lengths.lengths.push_back(row.length);
  return {.name = "sdtp",
          .title = kTitle,
          .runs = {lengths,
                   {.name = "longbench", .tasks = LongBenchTasks()},
                   {.name = "fewshot", .tasks = FewShotTasks()},
                   {.name = "heat-map", .tasks = {"kamradt"}, .lengths = {8192}, .samples = 3}},
          .tables = {Table2(model), LongBench(model), FewShotTable(model), HeatMap(model)}};
}

}  // namespace coppice
