#include "model/recurrent_state.h"

#include <algorithm>

#include "base/check.h"
#include "tensor/device_memory.h"

namespace coppice {

void RecurrentState::Begin(const RecurrentShape& s) {
  if (now.last.cols() > 0) return;
  now.last = Tensor::Zeros(DType::kF32, s.taps - 1, s.channels);
  now.state = Tensor::Zeros(DType::kF32, int64_t{s.value_heads} * s.key_dim, s.value_dim);
}

void RecurrentState::DropLast(int64_t tokens) {
  COPPICE_CHECK(tokens <= pending);
  pending -= tokens;
}

void ShiftRows(const TensorView& x, MutableTensorView last) {
  const int64_t fresh = std::min(x.rows, last.rows);
  const int64_t old = last.rows - fresh;
  // Towards the front, so that no row is read after it was written.
  for (int64_t i = 0; i < old; ++i) CopyRows(last.Rows(i + fresh, 1), last.Rows(i, 1));
  if (fresh > 0) CopyRows(x.Rows(x.rows - fresh, fresh), last.Rows(old, fresh));
}

}  // namespace coppice
