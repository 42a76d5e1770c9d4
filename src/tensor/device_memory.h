// Where tensors live that are not in host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "tensor/record_store.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace coppice {

// The memory of a device. Host code must not read or write it: a view of it says so (TensorView::memory), its
// Row() fails a check in debug builds, and the address faults. Host code asks for a copy (HostRows) or moves
// rows with the functions below. They take effect in the order of the calls, together with the operations of
// the backend that the memory belongs to. They throw Error if the device fails.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // At least `bytes` bytes, aligned to 256. Throws Error if they do not fit. Both functions may be called
  // from any thread.
  virtual std::byte* Allocate(int64_t bytes) = 0;
  // Takes effect after the operations that were called before.
  virtual void Free(std::byte* data) noexcept = 0;

  // to = from, of equal type and shape. Either may be in host memory. They may overlap. On return a source in
  // host memory has been read, and a destination in host memory is complete.
  virtual void Copy(const TensorView& from, const MutableTensorView& to) = 0;
  // to[i] = from[rows[i]]; `to` may be the first rows of `from` if `rows` ascend.
  virtual void Gather(const TensorView& from, std::span<const int32_t> rows, const MutableTensorView& to) = 0;
  virtual void Zero(const MutableTensorView& to) = 0;

  // A store of records in host memory, to which the device copies beside its operations. The memory must
  // outlive it. Null if the device has none.
  virtual std::unique_ptr<RecordStore> OpenRecordStore(int64_t /*record_bytes*/) { return nullptr; }
};

// to = from, of equal type and shape, wherever each of them lives. They may overlap.
void CopyRows(const TensorView& from, const MutableTensorView& to);

// to = 0, wherever it lives.
void ZeroRows(const MutableTensorView& to);

// to[i] = from[rows[i]], of equal type, both in one memory; `to` may be the first rows of `from` if `rows`
// ascend.
void KeepRows(const TensorView& from, std::span<const int32_t> rows, const MutableTensorView& to);

// The values of a view for host code to read: the view itself, or a copy if it is in a device's memory.
class HostRows {
 public:
  explicit HostRows(const TensorView& rows);
  TensorView view() const& { return copy_ ? copy_->view() : rows_; }
  TensorView view() const&& = delete;

 private:
  TensorView rows_;
  std::optional<Tensor> copy_;
};

}  // namespace coppice
