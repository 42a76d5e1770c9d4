// A safetensors file.
#include "formats/safetensors.h"

#include "formats/test_bytes.h"
#include "fuzz/fuzz_support.h"
#include "fuzz/fuzz_target.h"

namespace coppice {
namespace {

std::vector<std::string> Seeds() {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},"m":{"dtype":"U8","shape":[8],)"
      R"("data_offsets":[32,40]}})";
  return {Bytes().String(header).Zeros(40).text(), Bytes().String("{}").text()};
}

bool Run(std::string_view input) {
  const std::vector<std::byte> bytes = ExactBytes(input);
  return Accepts([&] { ReadAllValues(ParseSafetensors(bytes, "x.safetensors").tensors); });
}

}  // namespace

FuzzTarget SafetensorsTarget() {
  return {"safetensors",
          Seeds,
          {"__metadata__", "dtype", "shape", "data_offsets", "F32", "F16", "BF16", "I64", "F8_E4M3", "BOOL",
           "[0,0]", "18446744073709551615"},
          Run};
}

}  // namespace coppice
