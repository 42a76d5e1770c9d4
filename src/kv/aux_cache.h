// The Aux cache: hidden states of tokens that were dropped from the stream and may return.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "tensor/device_memory.h"
#include "tensor/tensor.h"

namespace coppice {

// Holds at most one state per position, stored in the type of the keys (bf16 where keys are Q8_0) so that
// sizes in bytes are comparable. Take() frees the slot. `ffn_owed` means that the token was dropped after a
// layer's attention and still needs that layer's FFN.
//
// The states are in host memory, wherever the stream's hidden states are. If these are in a device's memory,
// the device's own store of records holds the states, and nothing waits for a state that is parked.
class AuxCache {
 public:
  // `memory`: of the hidden states; null: host memory. It must outlive the cache.
  AuxCache(DType dtype, int64_t width, DeviceMemory* memory = nullptr)
      : dtype_(dtype), width_(width), memory_(memory) {}

  bool Has(int32_t position) const { return SlotOf(position) >= 0; }
  bool FfnOwed(int32_t position) const { return Has(position) && owed_[static_cast<size_t>(position)]; }
  // hidden [positions, width] fp32, in the cache's memory. The positions must not hold a state.
  void Park(std::span<const int32_t> positions, bool ffn_owed, const TensorView& hidden, Backend& be);
  void Park(int32_t position, bool ffn_owed, const TensorView& hidden, Backend& be) {
    Park({&position, 1}, ffn_owed, hidden, be);
  }
  // Writes the states to hidden [positions, width] fp32, in the cache's memory, and frees their slots.
  void Take(std::span<const int32_t> positions, MutableTensorView hidden, Backend& be);

  int64_t tokens() const { return tokens_; }
  int64_t bytes() const { return tokens_ * BytesOf(dtype_, width_); }

 private:
  static constexpr int32_t kChunk = 64;

  MutableTensorView RowOf(int32_t slot);
  int32_t NewSlot(int32_t position, bool ffn_owed);
  int32_t FreeSlot(int32_t position);  // returns the slot that the position had
  int32_t SlotOf(int32_t position) const {
    return static_cast<size_t>(position) < slots_.size() ? slots_[static_cast<size_t>(position)] : -1;
  }
  DType dtype_;
  int64_t width_;
  DeviceMemory* memory_;
  std::unique_ptr<RecordStore> store_;  // of a device; a record is a state
  int64_t tokens_ = 0;
  std::vector<int32_t> slots_;  // by position: its slot, or -1
  std::vector<bool> owed_;      // by position
  // kChunk slots each, so that growing the pool moves nothing. With a store there are none.
  std::vector<Tensor> chunks_;
  std::vector<int32_t> free_;  // free slots
  int32_t slots_made_ = 0;
};

}  // namespace coppice
