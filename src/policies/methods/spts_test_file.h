// For tests: files of SPTS proxies, irregular but the same every time. They predict nothing.
#pragma once

#include "formats/model_shape.h"
#include "policies/side_test_file.h"

namespace coppice {

struct SptsTestFile : SideTestFile {
  // Proxies of the layers from `first` on. A file of LayerNorm has biases, too, as BLOOM has.
  SptsTestFile(const ModelShape& shape, int64_t channels, int64_t rank, int first = 0,
               bool layer_norm = false) {
    metadata = {{"layers", fmt::format("{}", shape.layer_count())},
                {"first_layer", fmt::format("{}", first)},
                {"channels", fmt::format("{}", channels)},
                {"rank", fmt::format("{}", rank)},
                {"norm", layer_norm ? "layer" : "rms"},
                {"eps", "1e-05"},
                {"ffn", shape.gated_ffn ? "gated" : "plain"},
                {"biases", layer_norm ? "all" : "none"},
                {"base_model", "a test"}};
    const int64_t d = shape.hidden;
    for (int l = first; l < shape.layer_count(); ++l) {
      const auto add = [&](const char* part, std::vector<int64_t> of) {
        int64_t count = 1;
        for (const int64_t n : of) count *= n;
        tensors.push_back({fmt::format("spts.{}.{}", l, part), std::move(of),
                           Values(count, static_cast<uint32_t>(tensors.size() + 1))});
      };
      add("norm.w", {d});
      if (layer_norm) add("norm.b", {d});
      for (const char* half : {"gate", "up"}) {
        if (half[0] == 'g' && !shape.gated_ffn) continue;
        const std::string name = half;
        add((name + ".in").c_str(), {rank, d});
        add((name + ".out").c_str(), {channels, rank});
        if (layer_norm) add((name + ".b").c_str(), {channels});
      }
      add("down", {rank, channels});
      if (layer_norm) {
        add("down.b", {rank});
        add("down.rest", {1});
      }
    }
  }
};

}  // namespace coppice
