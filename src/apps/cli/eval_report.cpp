// coppice report: the page of a run of `coppice eval`, made anew from its samples.
#include <fmt/core.h>

#include <memory>
#include <string>

#include "apps/cli/commands.h"
#include "eval/report/page.h"

namespace coppice::cli {
namespace {

struct ReportOptions {
  std::string folder;
  std::string pictures;
};

}  // namespace

void AddReport(CLI::App& app) {
  auto o = std::make_shared<ReportOptions>();
  CLI::App* report = app.add_subcommand(
      "report", "draw what `eval` recorded: report.html and results.json, without running");
  report->add_option("folder", o->folder, "the folder that `eval -o` named; its samples.jsonl is read")
      ->required();
  report->add_option("--pictures", o->pictures, "a folder that gets each figure as an SVG file, too");
  report->callback([o] {
    WriteReport(o->folder, o->pictures);
    fmt::print("{}/report.html\n", o->folder);
  });
}

}  // namespace coppice::cli
