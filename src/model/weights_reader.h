// Reads tensors of a file into a model's weights, checked against the sizes that the config gives.
#pragma once

#include <string>

#include "formats/tensor_store.h"
#include "model/tensor_names.h"
#include "model/weights.h"

namespace coppice {

class WeightsReader {
 public:
  // Both must outlive the reader.
  WeightsReader(const TensorStore& store, Weights& weights) : store_(store), weights_(weights) {}

  [[noreturn]] void Fail(const std::string& name, const std::string& why) const;
  bool Has(const std::string& name) const { return store_.Find(name) != nullptr; }

  // A matrix of any type whose shape the config gives.
  TensorView Matrix(const std::string& name, int64_t rows, int64_t cols);
  // A matrix in fp32, converted if the file stores another type.
  TensorView Floats(const std::string& name, int64_t rows, int64_t cols);
  // The same for `size` values in rows of any length.
  TensorView AllFloats(const std::string& name, int64_t size);
  // A vector in fp32. Empty if it is optional and absent.
  TensorView Vector(const std::string& name, int64_t size, bool required);
  // `bias`: whether the map must have one.
  Linear Map(const std::string& name, int64_t outputs, int64_t inputs, bool bias);
  // [parts, rows, cols] of any type, as [parts * rows, cols]. In a type without blocks a file may store it as
  // [parts, cols, rows], which gets a copy.
  enum class Order { kRows, kEither, kColumns };
  TensorView Stacked(const std::string& name, int64_t parts, int64_t rows, int64_t cols,
                     Order plain = Order::kRows);
  // Keeps a converted tensor.
  TensorView Own(Tensor tensor);

 private:
  void Count(const TensorView& view);
  TensorView Turned(const TensorView& stored, int64_t parts, int64_t rows, int64_t cols);

  const TensorStore& store_;
  Weights& weights_;
};

// The mixer of a layer with a state; `prefix` stands before the names of its tensors.
void LoadRecurrent(WeightsReader& read, const ModelConfig& config, const std::string& prefix,
                   const LayerShape& layer, LayerWeights& w);

// A matrix that holds each head's rows of the query, and behind them those of the gate on its output.
void LoadQueryAndGate(WeightsReader& read, const std::string& name, const LayerShape& layer, int64_t hidden,
                      bool bias, LayerWeights& w);

// The mixture of a layer; `prefix` stands before the names of its tensors.
MixtureWeights LoadMixture(WeightsReader& read, const ModelConfig& config, const std::string& prefix,
                           const LayerShape& layer);

}  // namespace coppice
