// For tests: side files of methods, put together byte by byte, so that they can be wrong.
#pragma once

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace coppice {

struct SideTestFile {
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<float> values;
    std::string dtype = "F32";  // of the header; F32 is what the values are stored as
  };
  std::vector<Tensor> tensors;
  std::map<std::string, std::string> metadata;

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
