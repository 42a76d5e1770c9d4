// The tables of SlimInfer (arXiv 2508.06447). Stages are the published ones for 32 and 28 layers and scaled
// for other models; budgets are in tokens, as published for Llama-3.1-8B.
#include <fmt/core.h>

#include <algorithm>

#include "eval/paper/paper.h"

namespace coppice {

namespace {

constexpr const char* kTitle =
    "SlimInfer: accelerating long-context LLM inference via dynamic token pruning, arXiv 2508.06447";
constexpr const char* kLlama = "Llama-3.1-8B-Instruct";
constexpr const char* kQwen = "Qwen2.5-7B-Instruct";
constexpr int64_t kK = 1024;

PaperMethod Slim(const char* label, int first, int second, int third, const char* more = "") {
  return {label, {fmt::format("sliminfer:keep={}/{}/{}{},min=0", first * kK, second * kK, third * kK, more)}};
}
PaperMethod Lazy(int percent) {
  return {fmt::format("LazyLLM, {} %", percent),
          {fmt::format("lazyllm:preset=paper,keep=0.{},min=0", percent)}};
}
PaperMethod Flex(const char* gamma) {
  return {fmt::format("FlexPrefill, gamma {}", gamma), {fmt::format("flexprefill:gamma={},min=0", gamma)}};
}
PaperMethod Dense() { return {"Dense", {"none"}}; }
PaperMethod MInference() { return {"MInference", {"minference:min=0"}}; }

// A prompt of 32k tokens and 16 tokens behind it.
std::vector<PaperGroup> AverageAndSeconds(const std::string& run) {
  std::vector<PaperGroup> columns = LongBenchCategories(run);
  columns.push_back({.label = "end to end s, 32k",
                     .run = run + "-32k",
                     .tasks = {"continue/16"},
                     .length = 32 * kK,
                     .measure = PaperMeasure::kTotalSeconds});
  return columns;
}
std::vector<double> Averages(double score, double seconds) {
  return {kNotGiven, kNotGiven, kNotGiven, kNotGiven, kNotGiven, kNotGiven, score, seconds};
}

PaperTable LongBench() {
  PaperTable table{.id = "longbench",
                   .title = "LongBench",
                   .source = "the paper's means; its figures by category are not here",
                   .wide = true,
                   .groups = LongBenchColumns("longbench"),
                   .methods = {Dense(), MInference(), Flex("0.95"), Lazy(50),
                               Slim("SlimInfer, 8/4/2k", 8, 4, 2), Slim("SlimInfer, 12/6/4k", 12, 6, 4)}};
  const auto add = [&](const char* model, const char* method, double score) {
    table.published.push_back({model, "", method, Averages(score, kNotGiven)});
    table.published.back().values.push_back(kNotGiven);
  };
  add(kLlama, "Dense", 48.08);
  add(kLlama, "MInference", 47.17);
  add(kLlama, "LazyLLM, 50 %", 47.23);
  add(kLlama, "SlimInfer, 8/4/2k", 47.65);
  add(kQwen, "Dense", 47.76);
  add(kQwen, "MInference", 47.25);
  add(kQwen, "FlexPrefill, gamma 0.95", 44.61);
  add(kQwen, "LazyLLM, 50 %", 45.48);
  add(kQwen, "SlimInfer, 12/6/4k", 47.38);
  return table;
}

struct SlimInferTradeOff {
  const char* method;
  double score, seconds;
};
PaperTable WithSeconds(const char* id, const char* title, const char* source, const std::string& run,
                       const std::vector<PaperMethod>& methods,
                       const std::vector<SlimInferTradeOff>& figures) {
  PaperTable table{.id = id,
                   .title = title,
                   .source = source,
                   .wide = true,
                   .groups = AverageAndSeconds(run),
                   .methods = methods};
  for (const SlimInferTradeOff& row : figures)
    table.published.push_back({kLlama, "", row.method, Averages(row.score, row.seconds)});
  return table;
}

PaperTable TradeOff() {
  return WithSeconds(
      "E", "Score against the time of 32k tokens and 16 behind them", "table E, on an RTX 4090", "trade-off",
      {Dense(), MInference(), Flex("0.99"), Flex("0.98"), Flex("0.95"), Flex("0.90"), Lazy(50), Lazy(45),
       Lazy(40), Lazy(35), Slim("SlimInfer, 16/8/4k", 16, 8, 4), Slim("SlimInfer, 12/6/4k", 12, 6, 4),
       Slim("SlimInfer, 10/5/3k", 10, 5, 3), Slim("SlimInfer, 8/4/2k", 8, 4, 2)},
      {{"Dense", 48.08, 5.561},
       {"MInference", 47.17, 5.935},
       {"FlexPrefill, gamma 0.99", 47.19, 4.949},
       {"FlexPrefill, gamma 0.98", 46.87, 4.690},
       {"FlexPrefill, gamma 0.95", 46.38, 4.403},
       {"FlexPrefill, gamma 0.90", 45.64, 4.231},
       {"LazyLLM, 50 %", 47.23, 4.364},
       {"LazyLLM, 45 %", 46.90, 4.124},
       {"LazyLLM, 40 %", 46.66, 3.893},
       {"LazyLLM, 35 %", 46.12, 3.655},
       {"SlimInfer, 16/8/4k", 47.98, 3.457},
       {"SlimInfer, 12/6/4k", 47.90, 3.119},
       {"SlimInfer, 10/5/3k", 47.70, 3.028},
       {"SlimInfer, 8/4/2k", 47.65, 2.959}});
}

PaperTable Gamma() {
  return WithSeconds(
      "gamma", "The overlap below which blocks are swapped", "the ablation of gamma", "gamma",
      {Dense(), Slim("gamma 0.99", 8, 4, 2, ",gamma=0.99"), Slim("gamma 0.95", 8, 4, 2, ",gamma=0.95"),
       Slim("gamma 0.90", 8, 4, 2, ",gamma=0.9")},
      {{"gamma 0.99", 47.67, 3.057}, {"gamma 0.95", 47.67, 3.040}, {"gamma 0.90", 47.65, 2.959}});
}

PaperTable Scoring() {
  return WithSeconds("scoring", "What scores a block", "the ablation of the score", "scoring",
                     {Dense(), Slim("average pooling", 8, 4, 2, ",score=avg"),
                      Slim("max pooling", 8, 4, 2, ",score=max"), Slim("token units", 8, 4, 2)},
                     {{"average pooling", 47.45, kNotGiven},
                      {"max pooling", 47.44, kNotGiven},
                      {"token units", 47.65, kNotGiven}});
}

// Lengths in units of 1,024 tokens; NaN where the paper has no figure. Table 2: GB of keys and values and
// what is saved. Latency: end to end with the cache manager in turn, and beside the computation, of 16
// tokens. Table F, on a Jetson Orin: seconds to the first token, dense and pruned, and end to end.
struct SlimInferByLength {
  int64_t k;
  double gigabytes, saved;
  double in_turn, beside;
  double orin_dense, orin_slim, orin_ttft, orin_total;
};
constexpr SlimInferByLength kLengths[] = {
    {4, kNotGiven, kNotGiven, kNotGiven, kNotGiven, 12.49, 12.76, 0.98, 0.93},
    {8, 0.80, 20.3, 1.00, 1.02, 26.16, 22.78, 1.15, 1.04},
    {16, 1.11, 44.5, 1.18, 1.29, 57.05, 35.31, 1.62, 1.22},
    {24, 1.42, 52.6, 1.37, 1.53, 93.31, 51.01, 1.83, 1.35},
    {28, 1.58, 54.9, 1.48, 1.79, 113.35, 59.29, 1.91, 1.60},
    {32, 1.73, 56.6, 1.60, 1.88, 134.73, 69.57, 1.94, 1.69}};
constexpr const char* kSlim = "SlimInfer, 8/4/2k";

PaperTable Lengths(const char* id, const char* title, const char* source, std::vector<PaperMeasure> measures,
                   int64_t from) {
  PaperTable table{.id = id,
                   .title = title,
                   .source = source,
                   .methods = {Dense(), Slim(kSlim, 8, 4, 2)},
                   .measures = std::move(measures)};
  for (const SlimInferByLength& row : kLengths) {
    if (row.k < from) continue;
    table.groups.push_back({.label = fmt::format("{}k", row.k),
                            .run = "lengths",
                            .tasks = {"continue/16"},
                            .length = row.k * kK});
  }
  return table;
}

PaperTable Table2() {
  PaperTable table = Lengths("2", "Memory of keys and values by prompt length", "table 2",
                             {PaperMeasure::kKvGib, PaperMeasure::kKvSaved}, 8);
  for (const SlimInferByLength& row : kLengths) {
    if (row.k >= 8)
      table.published.push_back({kLlama, fmt::format("{}k", row.k), kSlim, {row.gigabytes, row.saved}});
  }
  return table;
}

PaperTable Latency() {
  PaperTable table = Lengths("latency", "Speed-up by prompt length, with 16 tokens behind it",
                             "on an RTX 4090", {PaperMeasure::kTtftSpeedUp, PaperMeasure::kTotalSpeedUp}, 8);
  table.methods.push_back(
      {"SlimInfer, swaps in turn", {}, "a step here always swaps beside the computation"});
  for (const SlimInferByLength& row : kLengths) {
    if (row.k < 8) continue;
    const std::string label = fmt::format("{}k", row.k);
    table.published.push_back({kLlama, label, kSlim, {row.k == 32 ? 2.53 : kNotGiven, row.beside}});
    table.published.push_back({kLlama, label, "SlimInfer, swaps in turn", {kNotGiven, row.in_turn}});
  }
  table.published.push_back({kQwen, "32k", kSlim, {2.14, 1.84}});
  return table;
}

PaperTable TableF() {
  PaperTable table =
      Lengths("F", "Times by prompt length on a small machine", "table F, on a Jetson Orin",
              {PaperMeasure::kTtftSeconds, PaperMeasure::kTtftSpeedUp, PaperMeasure::kTotalSpeedUp}, 4);
  for (const SlimInferByLength& row : kLengths) {
    const std::string label = fmt::format("{}k", row.k);
    table.published.push_back({kLlama, label, "Dense", {row.orin_dense, kNotGiven, kNotGiven}});
    table.published.push_back({kLlama, label, kSlim, {row.orin_slim, row.orin_ttft, row.orin_total}});
  }
  return table;
}

// "prune 50 % at 10, 20, 30".
PaperTable Needle() {
  PaperTable table{
      .id = "needle",
      .title = "Needle in a haystack, half of the blocks dropped at each stage",
      .source = "none here",
      .note =
          "Kamradt's needle; the score is the share of its three phrases, in place of a judge "
          "model. The run's report has the heat map by depth.",
      .methods = {Dense(), {"SlimInfer, 50 %", {"sliminfer:keep=0.5,min=0"}}},
      .measures = {PaperMeasure::kScore, PaperMeasure::kTtftSpeedUp, PaperMeasure::kTotalSpeedUp}};
  for (const int64_t k : {4, 8, 16, 24, 32})
    table.groups.push_back(
        {.label = fmt::format("{}k", k), .run = "needle", .tasks = {"kamradt"}, .length = k * kK});
  table.groups.push_back({.label = "Average", .average = true});
  return table;
}

// Figure 2: the blocks that hold the needle leave before one layer after the other.
PaperTable Figure2(const PaperModel& model) {
  PaperTable table{
      .id = "figure-2",
      .title = "The needle's blocks dropped before one layer (information diffusion)",
      .source = "none here; the paper finds answers lost at layer 5 of 32 and kept at 25",
      .note =
          "Blocks of 64 tokens. The score is the share of answers that are still right; the dashed "
          "line is dense's.",
      .groups = {{.label = "4k", .run = "figure-2", .tasks = {"niah"}, .length = 4 * kK}},
      .methods = {Dense()},
      .measures = {PaperMeasure::kScore},
      .drawing = PaperDrawing::kCurves,
      .x_title = "dropped before layer"};
  std::vector<int> layers = {1};
  for (const int layer : SweepLayers(model)) {
    if (layer > 1) layers.push_back(layer);
  }
  for (const int layer : layers) {
    table.methods.push_back({.label = fmt::format("before layer {}", layer),
                             .specs = {fmt::format("drop:layer={},block=64,min=0", layer)},
                             .curve = "needle's blocks dropped",
                             .x = static_cast<double>(layer)});
  }
  return table;
}

// Figure 7: one stage instead of three.
PaperTable Figure7(const PaperModel& model) {
  PaperTable table = OneStage("7", "One stage: the layer and the budget", "Dense", "figure-7");
  table.x_title = "layer of the stage";
  for (const int budget : {2, 4, 8}) {
    for (const int layer : SweepLayers(model)) {
      table.methods.push_back(
          {.label = fmt::format("layer {}, {}k tokens", layer, budget),
           .specs = {fmt::format("sliminfer:layers={},keep={},min=0", layer, budget * kK)},
           .curve = fmt::format("{}k tokens", budget),
           .x = static_cast<double>(layer)});
    }
  }
  return table;
}

}  // namespace

Paper SlimInferPaper(const PaperModel& model) {
  Paper paper{.name = "sliminfer", .title = kTitle, .runs = {}, .tables = {}};
  for (const char* run : {"longbench", "trade-off", "gamma", "scoring", "figure-7"})
    paper.runs.push_back({.name = run, .tasks = LongBenchTasks()});
  for (const char* run : {"trade-off-32k", "gamma-32k", "scoring-32k"})
    paper.runs.push_back({.name = run, .tasks = {"continue/16"}, .lengths = {32 * kK}, .samples = 3});
  PaperRun lengths{.name = "lengths", .tasks = {"continue/16"}, .samples = 3};
  for (const SlimInferByLength& row : kLengths) lengths.lengths.push_back(row.k * kK);
  paper.runs.push_back(lengths);
  paper.runs.push_back({.name = "needle",
                        .tasks = {"kamradt"},
                        .lengths = {4 * kK, 8 * kK, 16 * kK, 24 * kK, 32 * kK},
                        .samples = 10});
  paper.runs.push_back({.name = "figure-2", .tasks = {"niah"}, .lengths = {4 * kK}, .samples = 10});
  paper.tables = {Table2(),  LongBench(), TradeOff(), Gamma(),        Scoring(),
                  Latency(), TableF(),    Needle(),   Figure2(model), Figure7(model)};
  return paper;
}

}  // namespace coppice
