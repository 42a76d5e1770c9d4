// For tests: files of SDTP predictors. No weights are trained: the scores are made to be known.
#pragma once

#include "policies/side_test_file.h"

namespace coppice {

struct SdtpTestFile : SideTestFile {
  // Predictors of width h at `layers` of a model of hidden size d, irregular but the same every time.
  SdtpTestFile(const std::vector<int>& layers, int64_t d, int64_t h) {
    metadata = {{"layers", fmt::format("{}", fmt::join(layers, ","))},
                {"r", "0.9"},
                {"stages", fmt::format("{}", layers.size())},
                {"first", "4"},
                {"local", "0.1"},
                {"base_model", "a test"}};
    for (size_t s = 0; s < layers.size(); ++s) {
      const auto name = [s](const char* part) { return fmt::format("sdtp.{}.{}", s, part); };
      tensors.push_back({name("ln.w"), {d}, Values(d, 1)});
      tensors.push_back({name("ln.b"), {d}, Values(d, 2)});
      tensors.push_back({name("fc1.w"), {h, d}, Values(h * d, static_cast<uint32_t>(3 + s))});
      tensors.push_back({name("fc1.b"), {h}, Values(h, 4)});
      tensors.push_back({name("fc2.w"), {2, h}, Values(2 * h, 5)});
      tensors.push_back({name("fc2.b"), {2}, Values(2, 6)});
    }
  }
};

}  // namespace coppice
