// The reference backend's recurrence and convolution; kernels/recurrence.h has the equations.
#pragma once

#include <span>

#include "kernels/recurrence.h"

namespace coppice::reference {

void Recur(const RecurrenceShape& shape, const RecurrenceWeights& weights, const RecurrenceRows& rows);
void Convolve(const TensorView& x, const TensorView& before, const Convolution& by, MutableTensorView y);

}  // namespace coppice::reference
