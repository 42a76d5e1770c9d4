// Models with random weights in the shape of real models: the same arithmetic without a download.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/threads.h"
#include "formats/tensor_store.h"
#include "model/config.h"
#include "tensor/dtype.h"

namespace coppice {

struct SyntheticModel {
  std::string shape_name;  // "llama-3.2-1b"
  DType type = DType::kBF16;
  // Of matrices that are not an expert's: Q8_0 beside MXFP4, as in gpt-oss's published files; else `type`.
  DType other_type() const { return type == DType::kMXFP4 ? DType::kQ8_0 : type; }
  ModelConfig config;

  struct TensorPlan {
    std::string name;            // in GGUF
    std::vector<int64_t> shape;  // outermost first
    DType type;                  // the model's type for matrices, fp32 for norms and biases
  };
  std::vector<TensorPlan> Tensors() const;
};

// NAME[/LAYERS][:TYPE], e.g. "llama-2-7b:q4_0" or its first two layers, "llama-2-7b/2:q4_0"; TYPE is bf16
// (default), f32, f16, q8_0, q4_0 or mxfp4. Throws Error for other names, and lists the known ones.
SyntheticModel ParseShape(const std::string& text);

// Fills in the bytes of one tensor. They depend only on its name, type and shape, so a model in a file equals
// the same model in memory.
void FillSynthetic(const SyntheticModel::TensorPlan& plan, std::span<std::byte> bytes,
                   const ThreadPool& pool);

std::shared_ptr<const TensorStore> MakeSyntheticStore(const SyntheticModel& model);

// Writes the model as GGUF v3, with a vocabulary of bytes and filler tokens, so that other engines can open
// it. Throws Cancelled, and leaves no file behind, when `cancelled` (may be null) is set.
void WriteSyntheticGguf(const SyntheticModel& model, const std::string& path,
                        const std::atomic<bool>* cancelled);

}  // namespace coppice
