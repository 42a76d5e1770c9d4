// Writes a safetensors file; safetensors.h describes the format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace coppice {

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kF32;        // kF32, kF16 or kBF16
  std::vector<int64_t> shape;       // outermost first
  std::span<const std::byte> data;  // without gaps; must outlive the call
};

// The file appears complete or not at all. `part` names the caller in messages. Throws Error if the file
// cannot be written.
void WriteSafetensors(const std::string& path, std::string_view part,
                      std::span<const SafetensorsEntry> tensors,
                      const std::map<std::string, std::string>& metadata);

}  // namespace coppice
