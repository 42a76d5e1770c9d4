// Records of fixed size that are kept outside the memory in which operations work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace coppice {

class DeviceMemory;

// For one thread at a time. Writes and reads are asynchronous. Every call throws Error if a transfer failed,
// also one that an earlier call started; after an error the store can only be destroyed. Slots are numbered
// from 0, and the store grows as needed.
class RecordStore {
 public:
  virtual ~RecordStore() = default;

  // Memory for `count` records, one after the other, in memory(). The caller fills it and then calls Write.
  virtual std::byte* Stage(int64_t count) = 0;
  // Starts writing the records of the last Stage, as many as it was asked for: record i to slots[i], in
  // place of the record that is there. The slots must differ.
  virtual void Write(std::span<const int64_t> slots) = 0;
  // Starts reading written slots, so that the next Read of the same list need not wait for the transfer. A
  // second call before that Read does nothing.
  virtual void Prefetch(std::span<const int64_t> slots) = 0;
  // Waits for the records, starting the transfers that Prefetch did not. Returns them one after the other,
  // in memory(). They stay there until the next call. In a device's memory, operations that are called after
  // this one find them.
  virtual const std::byte* Read(std::span<const int64_t> slots) = 0;
  // Waits until every write has ended.
  virtual void Flush() = 0;

  virtual DeviceMemory* memory() const { return nullptr; }  // of staged and read records; null: host memory
  virtual int64_t record_bytes() const = 0;
  virtual std::string_view kind() const = 0;  // "io_uring", "threads", "sync"; "pinned": pinned host memory
};

}  // namespace coppice
