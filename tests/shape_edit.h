// Changes to the shape of a test's model.
#pragma once

#include <type_traits>

#include "formats/model_shape.h"

namespace coppice {

// Sets a size of every layer.
template <typename T>
void SetInAll(ModelShape& shape, T LayerShape::*size, std::type_identity_t<T> value) {
  for (LayerShape& layer : shape.layers) layer.*size = value;
}

}  // namespace coppice
