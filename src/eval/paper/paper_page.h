// The page of a paper's tables.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "eval/paper/sheet.h"
#include "eval/report/svg.h"

namespace coppice {

struct PaperPage {
  struct Table {
    PaperSheet sheet;
    std::optional<Svg> figure;
  };
  std::string title;  // the paper's
  std::string model;  // this run's
  std::vector<Table> tables;
  std::vector<std::string> reports;  // links to the reports of the runs
};

// One self-contained HTML file, like a report's.
std::string PageText(const PaperPage& page);

// A table as a picture. PaperDrawing::kSpeedUps, of a tall table: of tasks, the score as a share of the dense
// model's against the TTFT speed-up (LazyLLM's figure 5); of lengths, the TTFT speed-up by length. The
// others: paper_drawings.h. None where the table lacks what it needs.
std::optional<Svg> PaperFigure(const PaperTable& table, const PaperRows& rows, const std::string& model);

}  // namespace coppice
