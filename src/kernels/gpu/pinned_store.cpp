#include "kernels/gpu/pinned_store.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace coppice::gpu {

namespace {

// Pinned memory is allocated in pieces of this size: an allocation takes the time in which the system finds
// and locks its pages, and a prompt that moves little should not wait for more.
constexpr int64_t kChunkBytes = int64_t{8} << 20;

size_t Unsigned(int64_t bytes) { return static_cast<size_t>(bytes); }

}  // namespace

PinnedStore::PinnedStore(Gpu& gpu, int64_t record_bytes)
    : gpu_(gpu),
      device_(gpu.device()),
      record_bytes_(record_bytes),
      records_of_chunk_(std::max<int64_t>(1, kChunkBytes / record_bytes)) {
  COPPICE_CHECK(record_bytes > 0);
}

// The pinned memory is freed after the last transfer. An error cannot be reported from here, and changes
// nothing.
PinnedStore::~PinnedStore() {
  for (Batch& batch : batches_) Discard(batch);
  if (!chunks_.empty()) device_.WaitForCopies();
  if (staged_ != 0) device_.Free(staged_);
  if (read_ != 0) device_.Free(read_);
  for (CUevent event : spare_) device_.driver().cuEventDestroy(event);
}

std::byte* PinnedStore::Stage(int64_t count) {
  COPPICE_CHECK(count > 0);
  ForgetRead();
  if (staged_ != 0) device_.Free(std::exchange(staged_, 0));
  staged_ = device_.Allocate(count * record_bytes_);
  staged_records_ = count;
  return reinterpret_cast<std::byte*>(staged_);
}

void PinnedStore::Write(std::span<const int64_t> slots) {
  COPPICE_CHECK(staged_ != 0 && std::ssize(slots) == staged_records_);
  Forget(slots);
  for (const int64_t slot : slots) {
    COPPICE_CHECK(slot >= 0);
    RecordAt(slot);  // allocates
    if (slot >= std::ssize(written_)) written_.resize(Unsigned(slot) + 1);
    written_[Unsigned(slot)] = true;
  }
  device_.WithoutRecording([&](const Driver& d, CUstream operations, CUstream copies) {
    device_.Order(operations, copies);
    ForRuns(slots, [&](std::byte* record, int64_t first, int64_t count) {
      const CUdeviceptr from = staged_ + static_cast<CUdeviceptr>(first * record_bytes_);
      d.Check(d.cuMemcpyDtoHAsync(record, from, Unsigned(count * record_bytes_), copies),
              "copying to the cold tier");
    });
    d.Check(d.cuMemFreeAsync(std::exchange(staged_, 0), copies), "freeing device memory");
  });
}

void PinnedStore::Prefetch(std::span<const int64_t> slots) {
  const auto same = [&](const Batch& batch) { return std::ranges::equal(batch.slots, slots); };
  if (std::ranges::any_of(batches_, same)) return;
  Forget(slots);  // what other lists have of them
  Begin(slots);
}

const std::byte* PinnedStore::Read(std::span<const int64_t> slots) {
  ForgetRead();
  Prefetch(slots);
  const auto found = std::ranges::find_if(
      batches_, [&](const Batch& batch) { return std::ranges::equal(batch.slots, slots); });
  device_.WithoutRecording([&](const Driver& d, CUstream operations, CUstream /*copies*/) {
    d.Check(d.cuStreamWaitEvent(operations, found->arrived, 0), "waiting for the cold tier");
  });
  spare_.push_back(std::exchange(found->arrived, nullptr));
  read_ = std::exchange(found->address, 0);
  batches_.erase(found);
  return reinterpret_cast<const std::byte*>(read_);
}

void PinnedStore::Flush() {
  device_.WithoutRecording([](const Driver& d, CUstream /*operations*/, CUstream copies) {
    d.Check(d.cuStreamSynchronize(copies), "copying to the cold tier");
  });
}

// Starts the transfer of a list. The stream of copies has its writes before it.
void PinnedStore::Begin(std::span<const int64_t> slots) {
  COPPICE_CHECK(!slots.empty());
  for (const int64_t slot : slots)
    COPPICE_CHECK(slot >= 0 && slot < std::ssize(written_) && written_[Unsigned(slot)]);
  Batch batch{{slots.begin(), slots.end()}};
  batch.arrived = TakeEvent();
  try {
    batch.address = device_.AllocateForCopies(std::ssize(slots) * record_bytes_);
    device_.WithoutRecording([&](const Driver& d, CUstream /*operations*/, CUstream copies) {
      ForRuns(slots, [&](std::byte* record, int64_t first, int64_t count) {
        const CUdeviceptr to = batch.address + static_cast<CUdeviceptr>(first * record_bytes_);
        d.Check(d.cuMemcpyHtoDAsync(to, record, Unsigned(count * record_bytes_), copies),
                "copying from the cold tier");
      });
      d.Check(d.cuEventRecord(batch.arrived, copies), "recording an event");
    });
  } catch (...) {
    Discard(batch);
    throw;
  }
  batches_.push_back(std::move(batch));
}

void PinnedStore::ForgetRead() {
  if (read_ != 0) device_.Free(std::exchange(read_, 0));
}

void PinnedStore::Forget(std::span<const int64_t> slots) {
  ForgetRead();
  std::erase_if(batches_, [&](Batch& batch) {
    const bool stale = std::ranges::find_first_of(batch.slots, slots) != batch.slots.end();
    if (stale) Discard(batch);
    return stale;
  });
}

// Frees a batch that no operation reads.
void PinnedStore::Discard(Batch& batch) noexcept {
  if (batch.address != 0) device_.FreeAfterCopies(std::exchange(batch.address, 0));
  spare_.push_back(std::exchange(batch.arrived, nullptr));
}

template <typename Fn>
void PinnedStore::ForRuns(std::span<const int64_t> slots, Fn&& fn) {
  for (size_t begin = 0, end = 0; begin < slots.size(); begin = end) {
    for (end = begin + 1;
         end < slots.size() && slots[end] == slots[end - 1] + 1 && slots[end] % records_of_chunk_ != 0;
         ++end) {
    }
    fn(RecordAt(slots[begin]), static_cast<int64_t>(begin), static_cast<int64_t>(end - begin));
  }
}

std::byte* PinnedStore::RecordAt(int64_t slot) {
  while (slot / records_of_chunk_ >= std::ssize(chunks_)) {
    try {
      chunks_.push_back(std::make_unique<Device::Pinned>(device_, records_of_chunk_ * record_bytes_));
    } catch (const Error& error) {
      throw Error("[cold tier] no more pinned host memory, beside {} bytes of this request: {}",
                  std::ssize(chunks_) * records_of_chunk_ * record_bytes_, error.what());
    }
  }
  return chunks_[Unsigned(slot / records_of_chunk_)]->data() + slot % records_of_chunk_ * record_bytes_;
}

CUevent PinnedStore::TakeEvent() {
  CUevent event = nullptr;
  if (!spare_.empty()) {
    event = spare_.back();
    spare_.pop_back();
  } else {
    device_.WithoutRecording([&](const Driver& d, CUstream /*operations*/, CUstream /*copies*/) {
      d.Check(d.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "making an event");
    });
  }
  return event;
}

}  // namespace coppice::gpu
