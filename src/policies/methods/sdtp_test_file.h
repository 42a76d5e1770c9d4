// For tests: files of SDTP predictors, put together byte by byte, so that they can be wrong. No weights are
// trained: the scores are made to be known.
#pragma once

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace coppice {

struct SdtpTestFile {
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<float> values;
    std::string dtype = "F32";  // of the header; F32 is what the values are stored as
  };
  std::vector<Tensor> tensors;
  std::map<std::string, std::string> metadata;

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

  Tensor& Find(const std::string& name) {
    for (Tensor& tensor : tensors) {
      if (tensor.name == name) return tensor;
    }
    throw std::out_of_range(name);
  }

  // The file as it lies on disk.
  std::string Bytes() const {
    std::string header;
    std::string data;
    std::string fields;
    for (const auto& [key, value] : metadata) {
      fields += fmt::format("{}\"{}\":\"{}\"", fields.empty() ? "" : ",", key, value);
    }
    header = fmt::format("{{\"__metadata__\":{{{}}}", fields);
    for (const Tensor& tensor : tensors) {
      const size_t begin = data.size();
      data.append(reinterpret_cast<const char*>(tensor.values.data()), tensor.values.size() * sizeof(float));
      header += fmt::format(",\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                            tensor.name, tensor.dtype, fmt::join(tensor.shape, ","), begin, data.size());
    }
    header += "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + data;
  }

  static std::vector<float> Values(int64_t count, uint32_t seed) {
    std::vector<float> values(static_cast<size_t>(count));
    uint32_t state = seed * 2654435761u + 1;
    for (float& value : values) {
      state = state * 1664525u + 1013904223u;
      value = static_cast<float>(state >> 8) / static_cast<float>(1 << 24) - 0.5f;
    }
    return values;
  }
};

}  // namespace coppice
