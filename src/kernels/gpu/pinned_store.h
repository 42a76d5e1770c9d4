// Records in pinned host memory, which the device reads and writes beside its operations.
#pragma once

#include <memory>
#include <vector>

#include "kernels/gpu/gpu.h"
#include "tensor/record_store.h"

namespace coppice::gpu {

// Transfers run on the device's stream of copies. Two events order them with the operations: a write begins
// after the operations that filled the staged records, and operations that read records begin after the
// transfer that brought them. Nothing else waits, and the host never does. Staged and read records are
// device memory of the pool: what a write has staged is freed on the stream of copies, and what a read has
// brought on that of the operations, so it is used again only after its last use.
class PinnedStore final : public RecordStore {
 public:
  // `gpu` must outlive the store.
  PinnedStore(Gpu& gpu, int64_t record_bytes);
  ~PinnedStore() override;

  std::byte* Stage(int64_t count) override;
  void Write(std::span<const int64_t> slots) override;
  void Prefetch(std::span<const int64_t> slots) override;
  const std::byte* Read(std::span<const int64_t> slots) override;
  void Flush() override;

  DeviceMemory* memory() const override { return &gpu_.heap(); }
  int64_t record_bytes() const override { return record_bytes_; }
  std::string_view kind() const override { return "pinned"; }

 private:
  // A list of records that is on its way to the device.
  struct Batch {
    std::vector<int64_t> slots;
    CUdeviceptr address = 0;  // 0: none
    CUevent arrived = nullptr;
  };
  // Calls fn(the first record in pinned memory, index in `slots`, records) for runs of consecutive slots.
  template <typename Fn>
  void ForRuns(std::span<const int64_t> slots, Fn&& fn);
  std::byte* RecordAt(int64_t slot);
  void Begin(std::span<const int64_t> slots);
  void ForgetRead();  // frees the records of the last Read
  // The same, and frees the batches that have any of these slots.
  void Forget(std::span<const int64_t> slots);
  void Discard(Batch& batch) noexcept;
  CUevent TakeEvent();

  Gpu& gpu_;
  Device& device_;
  int64_t record_bytes_;
  int64_t records_of_chunk_;
  std::vector<std::unique_ptr<Device::Pinned>> chunks_;
  std::vector<bool> written_;  // by slot
  CUdeviceptr staged_ = 0;
  int64_t staged_records_ = 0;
  CUdeviceptr read_ = 0;  // the records of the last Read
  std::vector<Batch> batches_;
  std::vector<CUevent> spare_;
};

}  // namespace coppice::gpu
