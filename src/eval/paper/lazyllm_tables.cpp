// The tables of LazyLLM (arXiv 2407.14057v1). The paper does not publish layers and shares of its rows: the
// method's defaults stand in for them, so its ratios are not to be expected.
#include <fmt/core.h>

#include "eval/paper/paper.h"
#include "policies/presets.h"
#include "policies/spec.h"

namespace coppice {

namespace {

constexpr const char* kTitle =
    "LazyLLM: dynamic token pruning for efficient long context LLM inference, arXiv 2407.14057";

// Table 1: "We report the average metrics across 5 runs for the random token drop baseline."
std::vector<PaperMethod> Methods(const PaperModel& model) {
  PaperMethod compression{.label = "Prompt compression"};
  if (model.compressor.empty()) {
    compression.missing = "needs a second model: give `compressor`";
  } else {
    compression.specs = {fmt::format("selective:model={},min=0", QuotedValue(model.compressor))};
  }
  PaperMethod random{.label = "Random token drop"};
  for (int seed = 1; seed <= 5; ++seed) random.specs.push_back(fmt::format("random:seed={},min=0", seed));
  return {{"Baseline", {"none"}},
          random,
          {"Static token pruning", {"static:min=0"}},
          compression,
          {"LazyLLM", {"lazyllm:preset=paper,min=0"}}};
}

constexpr const char* kMethods[] = {"Baseline", "Random token drop", "Static token pruning",
                                    "Prompt compression", "LazyLLM"};

// Table 1: score and TTFT speed-up of the five methods with Llama 2 7B, then with XGen 7B.
struct LazyLlmFigures {
  const char* group;
  double llama[5][2];
  double xgen[5][2];
};
constexpr LazyLlmFigures kTable1[] = {
    {"Single-document QA",
     {{25.79, 1.00}, {20.05, 1.20}, {21.89, 1.18}, {22.88, 0.12}, {25.59, 1.36}},
     {{25.19, 1.00}, {18.32, 1.58}, {19.30, 1.61}, {15.31, 0.20}, {25.00, 1.96}}},
    {"Multi-document QA",
     {{22.43, 1.00}, {16.77, 1.19}, {19.93, 2.16}, {8.42, 0.13}, {22.31, 2.34}},
     {{20.71, 1.00}, {14.86, 1.37}, {17.23, 2.11}, {11.56, 0.19}, {20.68, 2.65}}},
    {"Summarization",
     {{24.65, 1.00}, {24.39, 1.39}, {24.59, 1.33}, {25.16, 0.12}, {24.75, 1.46}},
     {{24.85, 1.00}, {24.47, 1.70}, {24.46, 1.65}, {24.57, 0.17}, {24.74, 1.91}}},
    {"Few-shot learning",
     {{62.90, 1.00}, {53.93, 1.19}, {56.54, 2.16}, {24.18, 0.10}, {62.81, 2.19}},
     {{56.40, 1.00}, {46.35, 1.62}, {51.93, 3.17}, {23.72, 0.15}, {56.12, 3.42}}},
    {"Synthetic",
     {{4.97, 1.00}, {3.57, 1.18}, {2.81, 2.15}, {3.20, 0.12}, {4.98, 2.89}},
     {{5.40, 1.00}, {2.53, 1.13}, {3.00, 4.14}, {1.42, 0.17}, {5.66, 4.77}}},
    {"Code completion",
     {{55.18, 1.00}, {44.92, 1.23}, {37.51, 1.84}, {17.45, 0.49}, {53.30, 1.94}},
     {{36.49, 1.00}, {32.34, 1.57}, {32.27, 2.97}, {11.38, 0.69}, {36.47, 3.47}}}};

// Table 2: percent of the prompt's tokens computed and speed-up of the whole generation; Llama 2, then XGen.
struct LazyLlmComputed {
  const char* group;
  double llama[2];
  double xgen[2];
};
constexpr LazyLlmComputed kTable2[] = {
    {"Single-document QA", {87.31, 1.34}, {89.16, 1.33}}, {"Multi-document QA", {63.94, 1.56}, {69.60, 1.70}},
    {"Summarization", {99.59, 1.02}, {96.11, 1.09}},      {"Few-shot learning", {69.98, 1.28}, {65.30, 1.59}},
    {"Synthetic", {63.73, 1.79}, {40.54, 3.16}},          {"Code completion", {68.57, 1.01}, {72.61, 1.16}}};

PaperTable Table1(const PaperModel& model) {
  PaperTable table{
      .id = "1",
      .title = "TTFT speed-up against accuracy on LongBench",
      .source = "table 1",
      .note = "The random baseline is the mean of five seeds, as in the paper.",
      .groups = LongBenchCategories("longbench"),
      .methods = Methods(model),
      .measures = {PaperMeasure::kScore, PaperMeasure::kTtftSpeedUp, PaperMeasure::kTotalSpeedUp}};
  for (const LazyLlmFigures& row : kTable1) {
    for (int m = 0; m < 5; ++m) {
      table.published.push_back(
          {"Llama 2 7B", row.group, kMethods[m], {row.llama[m][0], row.llama[m][1], kNotGiven}});
      table.published.push_back(
          {"XGen 7B", row.group, kMethods[m], {row.xgen[m][0], row.xgen[m][1], kNotGiven}});
    }
  }
  return table;
}

PaperTable Table2(const PaperModel& model) {
  PaperTable table{.id = "2",
                   .title = "Share of the prompt that is computed, and speed-up of the whole generation",
                   .source = "table 2",
                   .note = "The share is of the prompt's keys over all layers, at the end of the answer.",
                   .groups = LongBenchCategories("longbench"),
                   .methods = {Methods(model).back()},
                   .measures = {PaperMeasure::kComputed, PaperMeasure::kTotalSpeedUp}};
  for (const LazyLlmComputed& row : kTable2) {
    table.published.push_back({"Llama 2 7B", row.group, "LazyLLM", {row.llama[0], row.llama[1]}});
    table.published.push_back({"XGen 7B", row.group, "LazyLLM", {row.xgen[0], row.xgen[1]}});
  }
  return table;
}

// "a simplified version of LazyLLM that prunes tokens just once": section 5.4. The figure has curves only.
PaperTable Figure6(const PaperModel& model) {
  PaperTable table =
      OneStage("6", "One stage: the layer and the share that it keeps", "Baseline", "one-stage");
  table.x_title = "share that stays, %";
  for (const int layer : SweepLayers(model)) {
    for (const int percent : {10, 30, 50, 70, 90}) {
      table.methods.push_back(
          {.label = fmt::format("layer {}, keep {} %", layer, percent),
           .specs = {fmt::format("lazyllm:preset=paper,layers={},keep=0.{},min=0", layer, percent / 10)},
           .curve = fmt::format("layer {}", layer),
           .x = static_cast<double>(percent)});
    }
  }
  return table;
}

// Figure 8: the share of the prompt that has been computed by each step of the answer, "for various stages
// within the network". A column pair for the layers of each stage.
PaperTable Figure8(const PaperModel& model) {
  PaperTable table{.id = "figure-8",
                   .title = "Token use by step of the answer, for each stage",
                   .source = "figure 8 has curves without numbers",
                   .note = "Percent of the prompt's tokens whose keys a stage's layers have computed.",
                   .wide = true,
                   .methods = {Methods(model).back()},
                   .drawing = PaperDrawing::kTokenUse};
  std::vector<int> begins = StageLayers(model.shape);  // the method's own: no key of it names others
  begins.insert(begins.begin(), 0);
  begins.push_back(model.shape.layer_count());
  for (size_t s = 0; s + 1 < begins.size(); ++s) {
    const std::string layers = fmt::format("layers {} to {}", begins[s], begins[s + 1] - 1);
    for (const PaperMeasure measure : {PaperMeasure::kPrefilled, PaperMeasure::kComputed}) {
      const char* const when = measure == PaperMeasure::kPrefilled ? "prefill" : "end";
      table.groups.push_back({.label = fmt::format("{}, {}", layers, when),
                              .run = "longbench",
                              .tasks = LongBenchTasks(),
                              .measure = measure,
                              .layer = begins[s]});
    }
  }
  return table;
}

}  // namespace

Paper LazyLlmPaper(const PaperModel& model) {
  return {.name = "lazyllm",
          .title = kTitle,
          .runs = {{.name = "longbench", .tasks = LongBenchTasks()},
                   {.name = "one-stage", .tasks = LongBenchTasks()}},
          .tables = {Table1(model), Table2(model), Figure6(model), Figure8(model)}};
}

}  // namespace coppice
