#include "apps/cli/eval_paper.h"

#include <fmt/core.h>

#include "apps/cli/terminal.h"

namespace coppice::cli {

namespace {

// Published models are numbered, because their names would make columns too wide.
void Print(const PaperSheet& sheet) {
  fmt::print("\n{}\npublished figures: {}\n", sheet.title, sheet.source);
  std::vector<std::string> header;
  std::vector<bool> right;
  std::vector<std::string> published;
  for (const SheetColumn& column : sheet.columns) {
    right.push_back(!column.text);
    header.push_back(column.name);
    if (!column.published) continue;
    if (published.empty() || published.back() != column.block) published.push_back(column.block);
    header.back() = fmt::format("[{}] {}", published.size(), column.name);
  }
  for (size_t i = 0; i < published.size(); ++i) fmt::print("[{}] {}\n", i + 1, published[i]);
  Table table(header, right);
  for (const SheetLine& line : sheet.lines) table.Add(line.cells);
  fmt::print("{}", table.Text());
  for (const std::string& note : sheet.notes) fmt::print("{}\n", note);
}

}  // namespace

void EvalPaper(const PaperOptions& options, const std::string& model, Engine& engine) {
  ProgressLine line("eval", 1, "");
  const PaperResult result =
      EvaluatePaper(options, model, engine, &Interrupted(), [&](const EvalProgress& progress) {
        line.SetLabel(progress.label);
        line.Update(progress.share);
      });
  line.Clear();
  fmt::print("{}\n", result.title);
  for (const PaperSheet& sheet : result.sheets) Print(sheet);
  fmt::print("\n{}\n", result.page);
}

}  // namespace coppice::cli
