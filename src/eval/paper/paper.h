// The tables of the four papers that this engine implements, as data: which settings answer which tasks, how
// the table is laid out, and the figures that the paper gives for its own models.
//
// A published number is here only if it could be read; kNotGiven marks the others. The settings are those of
// the paper with min=0, because the papers prune prompts of every length. Where a paper does not publish a
// setting, the method's default replaces it (docs/methods.md).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "formats/model_shape.h"

namespace coppice {

enum class PaperMeasure {
  kScore,         // percent
  kWinRate,       // percent of a judge's verdicts for the method's answers
  kTtftSpeedUp,   // dense's time to the first token over the method's
  kTotalSpeedUp,  // the same of the whole answer
  kFlopsRatio,    // dense's FLOPs of the prefill over the method's
  kTtftSeconds,
  kTotalSeconds,
  kTeraFlops,  // of the prefill
  kComputed,   // percent of the prompt's keys that were computed by the answer's end
  kPrefilled,  // the same after prefill
  kKvGib,      // keys and values held after the answer
  kKvSaved,    // percent of dense's
  kMemoryGib,  // the process, at its peak
};

inline constexpr double kNotGiven = std::numeric_limits<double>::quiet_NaN();

// What the settings of a table depend on.
struct PaperModel {
  ModelShape shape = {.architecture = {}, .name = {}, .layers = std::vector<LayerShape>(32)};
  std::string predictors = {};        // a file of SDTP's predictors for this model; empty: not given
  std::string compressor = {};        // the second model of prompt compression; empty: not given
  std::string classifier = {};        // the folder of LLMLingua-2's classifier; empty: not given
  std::string small_classifier = {};  // of its small one
};

// Samples that one journal records. Tables of equal arms share a run.
struct PaperRun {
  std::string name;  // its folder's
  std::vector<std::string> tasks;
  std::vector<int64_t> lengths = {};  // empty: texts are cut to the context
  int64_t samples = kAll;             // at most

  static constexpr int64_t kAll = int64_t{1} << 30;  // every sample of the data
};

// A row group of a tall table ("Single-document QA"), or a column of a wide one.
struct PaperGroup {
  std::string label;
  std::string run = {};
  std::vector<std::string> tasks = {};
  int64_t length = 0;                           // 0: the only one that the run has
  PaperMeasure measure = PaperMeasure::kScore;  // of a wide table's column
  int layer = -1;                               // kComputed and kPrefilled: of this layer; -1: of all layers
  bool average = false;  // the mean of the groups before it, in a wide table of its scores
};

struct PaperMethod {
  std::string label;
  std::vector<std::string> specs = {};  // several, such as seeds, are averaged; empty: published figures only
  std::string missing = {};             // why nothing is run
  // Of a table drawn as curves: the curve's name, and the method's place on it.
  std::string curve = {};
  double x = kNotGiven;
};

// How a table is drawn.
enum class PaperDrawing {
  kSpeedUps,  // a tall table with TTFT speed-ups: by group, or by length
  kCurves,    // the last score column against PaperMethod::x
  kTokenUse,  // what is computed by step of the answer, a curve for each layer that begins a group
  kKeys,      // heat maps: keys of the prompt, by layer and place
  kFfns,      // heat maps: FFNs that run, by layer and place
};

struct PublishedRow {
  std::string model;
  std::string group;           // of a tall table, else empty
  std::string method;          // a PaperMethod's label
  std::vector<double> values;  // of the table's measures, or of a wide table's columns
};

struct PaperTable {
  std::string id;  // "2": the paper's number; a word where the number is not known
  std::string title;
  std::string source;  // of the published figures
  std::string note = {};
  bool wide = false;  // a line for each method, a column for each group
  std::vector<PaperGroup> groups = {};
  std::vector<PaperMethod> methods = {};
  std::vector<PaperMeasure> measures = {};  // the columns of a tall table
  std::vector<PublishedRow> published = {};
  PaperDrawing drawing = PaperDrawing::kSpeedUps;
  std::string x_title = {};  // of kCurves
};

struct Paper {
  std::string name;   // "lazyllm"
  std::string title;  // with its place
  std::vector<PaperRun> runs;
  std::vector<PaperTable> tables;

  const PaperRun& Run(std::string_view run) const;
};

// Throws FieldError of `paper` for an unknown name.
Paper MakePaper(std::string_view name, const PaperModel& model);
// The table of that id, or every table where it is empty. Throws FieldError of `table`, with the choices.
std::vector<PaperTable> TablesOf(const Paper& paper, std::string_view id);
// The id of a figure's table: figure "8" is the table "figure-8", figure "heat-map" the table "heat-map".
// Figures are the tables with a drawing of their own. Throws FieldError of `figure`, with the choices.
std::string FigureId(const Paper& paper, std::string_view figure);

Paper LazyLlmPaper(const PaperModel& model);
Paper FtpPaper(const PaperModel& model);
Paper SdtpPaper(const PaperModel& model);
Paper SlimInferPaper(const PaperModel& model);

// Shared by the papers.

// LLMLingua-2 with the classifier of the folder; without one, why it is missing: `field` names it.
PaperMethod LlmLingua2(const char* label, const char* field, const std::string& folder, double keep);

// LongBench's 16 data sets in English and code, as the papers use them.
std::vector<std::string> LongBenchTasks();
// Its six categories, in the order of LongBench's own table; tall tables end with the mean of the six.
std::vector<PaperGroup> LongBenchCategories(const std::string& run);
// The columns of a wide table: the categories, their mean, and the ratios of all data sets.
std::vector<PaperGroup> LongBenchColumns(const std::string& run);
// The paper's layers 5, 10, ..., 30 of 32, each a layer of this model and different from the others.
std::vector<int> SweepLayers(const PaperModel& model);
// A wide table of curves over LongBench, for one stage whose layer and share or budget vary; with the dense
// line `dense`. Methods follow.
PaperTable OneStage(const char* figure, const char* title, const char* dense, const std::string& run);

}  // namespace coppice
