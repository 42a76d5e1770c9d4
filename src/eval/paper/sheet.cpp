#include "eval/paper/sheet.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace coppice {

namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;

bool IsRatio(PaperMeasure measure) {
  return measure == PaperMeasure::kTtftSpeedUp || measure == PaperMeasure::kTotalSpeedUp ||
         measure == PaperMeasure::kFlopsRatio;
}

// Percent of the prompt whose keys are computed: in one layer, or over all; by the answer's end, or after
// prefill.
double ComputedOf(const TokenUse& use, int layer, bool at_end) {
  const std::vector<double>* shares = layer < 0 ? &use.all : nullptr;
  for (const LayerUse& row : use.layers) {
    if (row.layer <= layer) shares = &row.shares;
  }
  if (shares == nullptr || shares->empty()) return NAN;
  return 100 * (at_end ? shares->back() : shares->front());
}

double ValueOf(const ResultRow& row, PaperMeasure measure, int layer) {
  switch (measure) {
    case PaperMeasure::kScore:
      return row.score;
    case PaperMeasure::kWinRate:
      return row.win_rate;
    case PaperMeasure::kTtftSpeedUp:
      return row.speed_up;
    case PaperMeasure::kTotalSpeedUp:
      return row.total_speed_up;
    case PaperMeasure::kFlopsRatio:
      return 1 / row.flops_ratio;
    case PaperMeasure::kTtftSeconds:
      return row.ttft_ms / 1000;
    case PaperMeasure::kTotalSeconds:
      return row.total_ms / 1000;
    case PaperMeasure::kTeraFlops:
      return row.flops / 1e12;
    case PaperMeasure::kComputed:
      return ComputedOf(row.used_by_step, layer, true);
    case PaperMeasure::kPrefilled:
      return ComputedOf(row.used_by_step, layer, false);
    case PaperMeasure::kKvGib:
      return row.kv_bytes / kGib;
    case PaperMeasure::kKvSaved:
      return 100 * (1 - row.kv_bytes / row.kv_bytes_dense);
    case PaperMeasure::kMemoryGib:
      return row.peak_memory_bytes / kGib;
  }
  return NAN;
}

// Of values that are finite; NaN where there are none.
double MeanOf(const std::vector<double>& values, bool geometric) {
  double sum = 0;
  for (const double value : values) sum += geometric ? std::log(value) : value;
  if (values.empty()) return NAN;
  sum /= static_cast<double>(values.size());
  return geometric ? std::exp(sum) : sum;
}

const ResultRow* Find(const std::vector<ResultRow>& rows, const std::string& task, int64_t length,
                      const std::string& prune) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const ResultRow& row) {
    return row.task == task && row.prune == prune && (length == 0 || row.length == length);
  });
  return found == rows.end() ? nullptr : &*found;
}

// Of a line's cells before it; a cell that is not finite makes the mean unknown.
double AverageOf(const std::vector<double>& values, bool geometric) {
  const bool whole = std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
  return whole ? MeanOf(values, geometric) : NAN;
}

// A tall table: a line for each group and method; blocks of columns for this run and each published model.
class TallSheet {
 public:
  TallSheet(const PaperTable& table, const PaperRows& rows, const std::string& model)
      : table_(table), rows_(rows), model_(model) {
    for (const std::string& published : PublishedModels(table)) {
      for (size_t c = 0; c < table.measures.size(); ++c) {
        if (IsPublished(published, c)) published_.push_back({published, c});
      }
    }
  }

  void Fill(PaperSheet& sheet) const {
    const bool by_length = !table_.groups.empty() && table_.groups.front().length > 0;
    sheet.columns = {{"", by_length ? "prompt" : "task", true}, {"", "method", true}};
    for (const PaperMeasure measure : table_.measures)
      sheet.columns.push_back({model_, MeasureName(measure)});
    for (const auto& [model, column] : published_)
      sheet.columns.push_back(
          {.block = model + ", published", .name = MeasureName(table_.measures[column]), .published = true});
    for (size_t g = 0; g < table_.groups.size(); ++g) {
      for (size_t m = 0; m < table_.methods.size(); ++m) sheet.lines.push_back(Line(g, m));
    }
  }

 private:
  bool IsPublished(const std::string& model, size_t column) const {
    return std::any_of(table_.published.begin(), table_.published.end(), [&](const PublishedRow& row) {
      return row.model == model && std::isfinite(row.values[column]);
    });
  }

  double Value(size_t group, const PaperMethod& method, PaperMeasure measure) const {
    if (!table_.groups[group].average) return CellValue(rows_, table_.groups[group], method, measure);
    std::vector<double> before;
    for (size_t g = 0; g < group; ++g) before.push_back(Value(g, method, measure));
    return AverageOf(before, IsRatio(measure));
  }

  SheetLine Line(size_t group, size_t method) const {
    const PaperMethod& of = table_.methods[method];
    const std::string& label = table_.groups[group].label;
    SheetLine line{.cells = {method == 0 ? label : "", of.label}, .begins = method == 0};
    for (const PaperMeasure measure : table_.measures)
      line.cells.push_back(MeasureText(measure, Value(group, of, measure)));
    for (const auto& [model, column] : published_) {
      line.cells.push_back(
          MeasureText(table_.measures[column], PublishedValue(table_, model, label, of.label, column)));
    }
    return line;
  }

  const PaperTable& table_;
  const PaperRows& rows_;
  const std::string& model_;
  std::vector<std::pair<std::string, size_t>> published_;  // model and measure of each published column
};

// A wide table: a line for each model and method; a column for each group.
void FillWide(const PaperTable& table, const PaperRows& rows, const std::string& model, PaperSheet& sheet) {
  sheet.columns = {{"", "model", true}, {"", "method", true}};
  for (const PaperGroup& group : table.groups) sheet.columns.push_back({"", group.label});
  bool begins = true;
  for (const PaperMethod& method : table.methods) {
    if (method.specs.empty()) continue;
    SheetLine line{.cells = {begins ? model : "", method.label}, .begins = begins};
    begins = false;
    std::vector<double> scores;
    for (const PaperGroup& group : table.groups) {
      const double value =
          group.average ? AverageOf(scores, false) : CellValue(rows, group, method, group.measure);
      if (group.measure == PaperMeasure::kScore && !group.average) scores.push_back(value);
      line.cells.push_back(MeasureText(group.measure, value));
    }
    sheet.lines.push_back(std::move(line));
  }
  std::string last;
  for (const PublishedRow& row : table.published) {
    begins = row.model != last;
    last = row.model;
    SheetLine line{
        .cells = {begins ? row.model + ", published" : "", row.method}, .published = true, .begins = begins};
    for (size_t c = 0; c < table.groups.size(); ++c)
      line.cells.push_back(MeasureText(table.groups[c].measure, row.values[c]));
    sheet.lines.push_back(std::move(line));
  }
}

// "3 to 20 samples of each task", and a sentence for each method that stood aside.
void AddNotesOfRows(const PaperTable& table, const PaperRows& rows, std::vector<std::string>& notes) {
  int64_t least = INT64_MAX, most = 0;
  std::vector<ResultRow> own;
  for (const auto& [run, of_run] : rows) {
    const bool used = std::any_of(table.groups.begin(), table.groups.end(),
                                  [&, name = run](const PaperGroup& group) { return group.run == name; });
    if (!used) continue;
    for (const ResultRow& row : of_run) {
      least = std::min(least, row.n.value_or(0));
      most = std::max(most, row.n.value_or(0));
      const bool of_table =
          std::any_of(table.methods.begin(), table.methods.end(), [&](const PaperMethod& method) {
            return std::find(method.specs.begin(), method.specs.end(), row.prune) != method.specs.end();
          });
      if (of_table) own.push_back(row);
    }
  }
  if (most > 0)
    notes.push_back(most == 1       ? "one sample of each task"
                    : least == most ? fmt::format("{} samples of each task", most)
                                    : fmt::format("{} to {} samples of each task", least, most));
  for (const std::string& note : AsideNotes(own)) notes.push_back(note);
}

// "Table 1: TTFT speed-up ...": with the paper's number, where it is known.
std::string HeadingOf(const PaperTable& table) {
  if (table.id.size() == 1) return fmt::format("Table {}: {}", table.id, table.title);
  if (table.id.starts_with("figure-")) return fmt::format("Figure {}: {}", table.id.substr(7), table.title);
  return table.title;
}

}  // namespace

std::string MeasureName(PaperMeasure measure) {
  switch (measure) {
    case PaperMeasure::kScore:
      return "score";
    case PaperMeasure::kWinRate:
      return "win rate %";
    case PaperMeasure::kTtftSpeedUp:
      return "TTFT x";
    case PaperMeasure::kTotalSpeedUp:
      return "end to end x";
    case PaperMeasure::kFlopsRatio:
      return "FLOPs x";
    case PaperMeasure::kTtftSeconds:
      return "TTFT s";
    case PaperMeasure::kTotalSeconds:
      return "end to end s";
    case PaperMeasure::kTeraFlops:
      return "TFLOPs";
    case PaperMeasure::kComputed:
      return "computed %";
    case PaperMeasure::kPrefilled:
      return "after prefill %";
    case PaperMeasure::kKvGib:
      return "KV GiB";
    case PaperMeasure::kKvSaved:
      return "KV saved %";
    case PaperMeasure::kMemoryGib:
      return "memory GiB";
  }
  return "";
}

std::string MeasureText(PaperMeasure measure, double value) {
  if (!std::isfinite(value)) return "";
  const bool coarse = measure == PaperMeasure::kKvSaved;
  return coarse ? fmt::format("{:.1f}", value) : fmt::format("{:.2f}", value);
}

double CellValue(const PaperRows& rows, const PaperGroup& group, const PaperMethod& method,
                 PaperMeasure measure) {
  const auto run = rows.find(group.run);
  if (run == rows.end() || method.specs.empty()) return NAN;
  std::vector<double> of_specs;
  for (const std::string& spec : method.specs) {
    std::vector<double> of_tasks;
    for (const std::string& task : group.tasks) {
      const ResultRow* row = Find(run->second, task, group.length, spec);
      const double value = row == nullptr ? NAN : ValueOf(*row, measure, group.layer);
      if (std::isfinite(value)) {
        of_tasks.push_back(value);
      } else if (!IsRatio(measure)) {
        return NAN;
      }
    }
    if (of_tasks.empty()) return NAN;
    of_specs.push_back(MeanOf(of_tasks, IsRatio(measure)));
  }
  return MeanOf(of_specs, IsRatio(measure));
}

double PublishedValue(const PaperTable& table, const std::string& model, const std::string& group,
                      const std::string& method, size_t column) {
  for (const PublishedRow& row : table.published) {
    if (row.model == model && row.group == group && row.method == method && std::isfinite(row.values[column]))
      return row.values[column];
  }
  return NAN;
}

std::vector<std::string> PublishedModels(const PaperTable& table) {
  std::vector<std::string> models;
  for (const PublishedRow& row : table.published) {
    if (std::find(models.begin(), models.end(), row.model) == models.end()) models.push_back(row.model);
  }
  return models;
}

PaperSheet FillTable(const PaperTable& table, const PaperRows& rows, const std::string& model,
                     const std::vector<std::string>& notes) {
  PaperSheet sheet{.id = table.id,
                   .title = HeadingOf(table),
                   .source = table.source,
                   .columns = {},
                   .lines = {},
                   .notes = notes};
  if (!table.note.empty()) sheet.notes.push_back(table.note);
  for (const PaperMethod& method : table.methods) {
    if (!method.missing.empty()) sheet.notes.push_back(method.label + " " + method.missing);
  }
  AddNotesOfRows(table, rows, sheet.notes);
  if (table.wide) {
    FillWide(table, rows, model, sheet);
  } else {
    TallSheet(table, rows, model).Fill(sheet);
  }
  return sheet;
}

}  // namespace coppice
