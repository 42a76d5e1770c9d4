// A trace and the page that is made of it.
#include "fuzz/fuzz_support.h"
#include "fuzz/fuzz_target.h"
#include "trace/page.h"
#include "trace/trace_file.h"
#include "trace/trace_test_support.h"

namespace coppice {
namespace {

const FuzzFolder& Folder() {
  static const FuzzFolder folder;
  return folder;
}

std::vector<std::string> Seeds() {
  const std::string path = Folder().path() + "/seed.trace";
  WriteTrace(SmallTrace(), path);
  std::ifstream file(path, std::ios::binary);
  return {std::string(std::istreambuf_iterator<char>(file), {})};
}

bool Run(std::string_view input) {
  const std::string path = Folder().Write("x.trace", input);
  return Accepts([&] {
    const Trace trace = ReadTrace(path);
    // What was accepted reads back as the same trace, and makes a page.
    WriteTrace(trace, path);
    if (ReadTrace(path) != trace) abort();
    TracePage(trace);
  });
}

}  // namespace

FuzzTarget TraceTarget() {
  return {"trace",
          Seeds,
          {"\"kept\":", "\"ffn\":", "\"attended\":", "\"events\":", "\"revived\"",
           "\"entered\":", "\"tokens\":", "\"head_density\":", "\"layers\":", "2147483647", "-1"},
          Run};
}

}  // namespace coppice
