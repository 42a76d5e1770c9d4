// A file of SPTS's proxies.
#include "fuzz/fuzz_support.h"
#include "fuzz/fuzz_target.h"
#include "policies/methods/spts_proxy.h"
#include "policies/methods/spts_test_file.h"

namespace coppice {
namespace {

ModelShape Shape(bool gated) {
  ModelShape shape = SmallShape(2, 2, 2);
  shape.gated_ffn = gated;
  return shape;
}

std::vector<std::string> Seeds() {
  return {SptsTestFile(Shape(true), 3, 2).Bytes(), SptsTestFile(Shape(false), 3, 2, 1, true).Bytes()};
}

bool Run(std::string_view input) {
  static const FuzzFolder folder;
  const std::string path = folder.Write("x.safetensors", input);
  const auto read = [&](bool gated) { return Accepts([&] { SptsFile(path, Shape(gated)); }); };
  const bool gated = read(true);
  return read(false) || gated;
}

}  // namespace

FuzzTarget ProxiesTarget() {
  return {"proxies",
          Seeds,
          {"__metadata__", "\"layers\":\"", "\"first_layer\":\"", "\"channels\":\"", "\"rank\":\"",
           "\"norm\":\"layer", "\"ffn\":\"plain", "\"biases\":\"all", "\"eps\":\"", "spts.0.gate.in",
           "spts.1.down.rest", "data_offsets", "shape", "BF16", "F16"},
          Run};
}

}  // namespace coppice
