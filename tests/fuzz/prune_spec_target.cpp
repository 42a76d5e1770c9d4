// A --prune spec, which a request may send: grammar, keys, and what methods make of them.
#include <algorithm>

#include "fuzz/fuzz_support.h"
#include "fuzz/fuzz_target.h"
#include "policies/registry.h"
#include "policies/spec.h"

namespace coppice {
namespace {

std::vector<std::string> Seeds() {
  return {"none",
          "lazyllm:layers=2/4,keep=0.7/0.4",
          "sliminfer+ftp:dense=4",
          "coppice:keep=0.5",
          "h2o:keep=0.5",
          "snapkv",
          "streamingllm:sink=4",
          "quest",
          "random:layers=1,keep=0.5",
          "static:keep=0.5,layer=2",
          "pyramidinfer",
          "minference",
          "flexprefill",
          "gemfilter:layer=2,keep=0.5,kernel=3",
          "xattention",
          "ftp:fill=mean,eta=0.5"};
}

bool Run(std::string_view input) {
  static const ModelShape shape = SmallShape(6, 8, 8);
  return Accepts([&] {
    const bool names_a_file = std::ranges::any_of(ParseSpec(input), [](const MethodSpec& m) {
      return m.values.contains("file") || m.values.contains("model");
    });
    if (names_a_file) throw Error("a file of this machine");
    const PruneChoice choice = MakePolicy(input, {.shape = shape, .tokens = 4096}, {});
    // The canonical text means itself.
    if (MakePolicy(choice.spec, {.shape = shape, .tokens = 4096}, {}).spec != choice.spec) abort();
  });
}

}  // namespace

FuzzTarget PruneSpecTarget() {
  return {"prune_spec",
          Seeds,
          {"+",      ":",         ",",       "=",         "/",       "keep=",       "layers=",
           "dense=", "eta=",      "min=",    "auto",      "layer=",  "pool=",       "window=",
           "1e-6",   "selective", "lazyllm", "sliminfer", "coppice", "pyramidinfer"},
          Run};
}

}  // namespace coppice
