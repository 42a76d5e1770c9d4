// The interface to a model's tensors, in a GGUF file (or its splits) or a Hugging Face folder.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tensor/view.h"

namespace coppice {

// A stored tensor, whose bytes are validated to be inside its (mapped) file. `view` folds the shape into rows
// and columns: cols is the innermost dimension, rows the product of the others, so a vector is one row.
struct StoredTensor {
  std::string name;
  std::vector<int64_t> shape;  // outermost first: [outputs, inputs]
  TensorView view;             // valid while the store lives
};

class TensorStore {
 public:
  virtual ~TensorStore() = default;
  // The file or folder, for messages.
  virtual const std::string& path() const = 0;
  // In file order.
  virtual const std::vector<StoredTensor>& tensors() const = 0;
  // Null if no tensor has that name.
  virtual const StoredTensor* Find(std::string_view name) const = 0;
};

}  // namespace coppice
