// coppice report: makes the page of a `coppice eval` run from its recorded samples.
#include <fmt/core.h>

#include <memory>
#include <string>

#include "apps/cli/commands.h"
#include "eval/report/page.h"

namespace coppice::cli {
namespace {

struct ReportOptions {
  std::string source;
  ReportOutputs outputs;
};

}  // namespace

void AddReport(CLI::App& app) {
  auto o = std::make_shared<ReportOptions>();
  CLI::App* report = app.add_subcommand(
      "report", "draw what `eval` recorded: report.html and results.json, without running");
  report
      ->add_option("source", o->source,
                   "the folder that `eval -o` named, whose samples.jsonl is read; or a results.json alone, "
                   "which gets a page beside it")
      ->required();
  report->add_option("--pictures", o->outputs.pictures, "a folder that gets each figure as an SVG file, too");
  report->add_option("--markdown", o->outputs.markdown, "a file that gets the tables as Markdown, too");
  report->callback([o] { fmt::print("{}\n", WriteReport(o->source, o->outputs)); });
}

}  // namespace coppice::cli
