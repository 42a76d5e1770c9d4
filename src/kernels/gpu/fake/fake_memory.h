// The memory of the fake device, and what counts as misuse of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace coppice::gpu::fake {

// Prints what is wrong, and ends the process as a sanitizer would: whoever misuses a device's memory reads
// wrong data from then on.
[[noreturn]] void Fault(const std::string& what);

// Device addresses lie in a range that the process has reserved without any access, so that host code that
// touches one faults. The bytes themselves are elsewhere, and only the fake reaches them. An address is never
// given out twice, so a use after free is always found.
class DeviceBytes {
 public:
  explicit DeviceBytes(int64_t total);

  int64_t total() const { return total_; }
  int64_t used() const { return used_; }
  int64_t allocations() const { return static_cast<int64_t>(live_.size()); }
  // 0 if `bytes` do not fit. New memory is full of NaN, the first 4 MiB of a block.
  uint64_t Allocate(size_t bytes);
  // The call that frees. Use() may still reach the bytes until Release.
  void MarkFreed(uint64_t address);
  void Release(uint64_t address);  // when the stream gets there
  // The bytes of [address, address + bytes), which must lie in one allocation. `what` and `part` are for
  // the message.
  std::byte* Use(uint64_t address, int64_t bytes, std::string_view what, std::string_view part = {});

  // Pinned host memory. Its addresses are not given out twice either, and host code that touches what was
  // freed faults.
  void* Pin(size_t bytes);
  void Unpin(void* address);
  int64_t pinned() const { return static_cast<int64_t>(pinned_.size()); }
  void CheckPinned(const void* address, size_t bytes, const char* what) const;

 private:
  struct Block {
    size_t bytes = 0;
    bool freed = false;
    std::unique_ptr<std::byte[]> data;
  };
  [[noreturn]] void FaultAt(uint64_t address, std::string_view what, std::string_view part) const;

  int64_t total_;
  int64_t used_ = 0;
  uint64_t next_;
  std::map<uint64_t, Block> live_;   // by address
  std::map<uint64_t, size_t> gone_;  // by address: bytes of released blocks
  std::map<uintptr_t, size_t> pinned_;
};

}  // namespace coppice::gpu::fake
