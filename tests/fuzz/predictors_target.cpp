// A file of SDTP's predictors.
#include "fuzz/fuzz_support.h"
#include "fuzz/fuzz_target.h"
#include "policies/methods/sdtp_predictor.h"
#include "policies/methods/sdtp_test_file.h"

namespace coppice {
namespace {

std::vector<std::string> Seeds() {
  return {SdtpTestFile({2}, 4, 2).Bytes(), SdtpTestFile({1, 3}, 4, 2).Bytes()};
}

bool Run(std::string_view input) {
  static const ModelShape shape = SmallShape(4, 2, 2);
  static const FuzzFolder folder;
  const std::string path = folder.Write("x.safetensors", input);
  return Accepts([&] { SdtpFile(path, shape); });
}

}  // namespace

FuzzTarget PredictorsTarget() {
  return {"predictors",
          Seeds,
          {"__metadata__", "\"layers\":\"", "\"r\":\"", "\"stages\":\"", "\"first\":\"", "\"local\":\"",
           "sdtp.0.ln.w", "sdtp.1.fc2.b", "data_offsets", "shape", "BF16", "F16"},
          Run};
}

}  // namespace coppice
