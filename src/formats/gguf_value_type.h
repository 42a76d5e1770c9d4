#pragma once

#include <cstdint>

namespace coppice {

// The types of values in a GGUF file's metadata, in the format's numbering.
enum GgufType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

}  // namespace coppice
