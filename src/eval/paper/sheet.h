// A paper's table filled in: the figures of a run beside the published ones, as text.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "eval/paper/paper.h"
#include "eval/results.h"

namespace coppice {

// The rows of each run that has been evaluated, by the run's name.
using PaperRows = std::map<std::string, std::vector<ResultRow>>;

struct SheetColumn {
  std::string block;  // over neighbouring columns: the model; may be empty
  std::string name;
  bool text = false;       // a label, not a number
  bool published = false;  // the paper's figures
};

struct SheetLine {
  std::vector<std::string> cells;  // "" where there is no figure
  bool published = false;          // the whole line is the paper's
  bool begins = false;             // the first line of a group
};

struct PaperSheet {
  std::string id, title, source;
  std::vector<SheetColumn> columns;
  std::vector<SheetLine> lines;
  std::vector<std::string> notes;  // what is missing, and why; plain text
};

// `model` names this run's model. Notes begin with `notes`.
PaperSheet FillTable(const PaperTable& table, const PaperRows& rows, const std::string& model,
                     const std::vector<std::string>& notes = {});

// The measure of a method over a group's tasks: their mean, over seeds too; geometric for ratios. A score is
// NaN where one of the group's tasks has no row, because it could not be compared; ratios are of the tasks
// that ran.
double CellValue(const PaperRows& rows, const PaperGroup& group, const PaperMethod& method,
                 PaperMeasure measure);
// NaN where the paper's figure is not known.
double PublishedValue(const PaperTable& table, const std::string& model, const std::string& group,
                      const std::string& method, size_t column);
// The models of the published figures, in their order.
std::vector<std::string> PublishedModels(const PaperTable& table);

std::string MeasureName(PaperMeasure measure);  // "TTFT x"
std::string MeasureText(PaperMeasure measure, double value);

}  // namespace coppice
