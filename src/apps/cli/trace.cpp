// coppice trace: a trace file as a page.
#include <memory>
#include <string>

#include "apps/cli/commands.h"
#include "base/new_file.h"
#include "trace/page.h"
#include "trace/trace_file.h"

namespace coppice::cli {
namespace {

struct TraceOptions {
  std::string file;
  std::string output;
};

void DrawTrace(const TraceOptions& o) {
  const std::string page = TracePage(ReadTrace(o.file));
  NewFile out(o.output, "trace");
  out.Append(page);
  out.Commit();
}

}  // namespace

void AddTrace(CLI::App& app) {
  auto o = std::make_shared<TraceOptions>();
  CLI::App* trace = app.add_subcommand("trace", "draw what `run --trace` recorded, as one HTML page");
  trace->add_option("file", o->file, "the file that `run --trace` wrote")->required();
  trace->add_option("-o,--output", o->output, "the page to write, e.g. trace.html")->required();
  trace->callback([o] { DrawTrace(*o); });
}

}  // namespace coppice::cli
