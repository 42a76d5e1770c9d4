// coppice trace: a trace file as a page.
#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include "apps/cli/commands.h"
#include "base/error.h"
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
  std::ofstream out(o.output, std::ios::binary | std::ios::trunc);
  if (!out) throw Error("{}: cannot be written: {}", o.output, std::strerror(errno));
  out << page;
  out.close();
  if (!out) throw Error("{}: cannot be written in full: {}", o.output, std::strerror(errno));
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
