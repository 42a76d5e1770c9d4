#include "kernels/gpu/fake/fake_memory.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace coppice::gpu::fake {

namespace {

constexpr size_t kRange = size_t{1} << 42;  // 4 TiB of addresses
constexpr size_t kAlignment = 512;

}  // namespace

void Fault(const std::string& what) {
  std::fprintf(stderr, "fake CUDA device: %s\n", what.c_str());
  std::abort();
}

DeviceBytes::DeviceBytes(int64_t total) : total_(total) {
  void* range = mmap(nullptr, kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) Fault("cannot reserve addresses");
  next_ = (reinterpret_cast<uint64_t>(range) + kAlignment - 1) / kAlignment * kAlignment;
}

uint64_t DeviceBytes::Allocate(size_t bytes) {
  if (used_ + static_cast<int64_t>(bytes) > total_) return 0;
  Block block{bytes, false, std::make_unique_for_overwrite<std::byte[]>(bytes)};
  std::memset(block.data.get(), 0xFF, bytes);  // NaN in every type of floats
  const uint64_t address = next_;
  next_ += (bytes + 2 * kAlignment - 1) / kAlignment * kAlignment;  // a gap, so that neighbours never touch
  used_ += static_cast<int64_t>(bytes);
  live_.emplace(address, std::move(block));
  return address;
}

void DeviceBytes::MarkFreed(uint64_t address) {
  const auto found = live_.find(address);
  if (found == live_.end() || found->second.freed) {
    const bool twice = found != live_.end() || gone_.contains(address);
    Fault(twice ? "double free" : "free of an address that was never allocated");
  }
  found->second.freed = true;
}

void DeviceBytes::Release(uint64_t address) {
  const auto found = live_.find(address);
  used_ -= static_cast<int64_t>(found->second.bytes);
  gone_.emplace(address, found->second.bytes);
  live_.erase(found);
}

std::byte* DeviceBytes::Use(uint64_t address, int64_t bytes, const std::string& what) {
  auto found = live_.upper_bound(address);
  if (found != live_.begin()) {
    --found;
    const uint64_t offset = address - found->first;
    if (offset + static_cast<uint64_t>(bytes) <= found->second.bytes) return found->second.data.get() + offset;
    if (offset < found->second.bytes) Fault(what + ": beyond the end of its allocation");
  }
  auto gone = gone_.upper_bound(address);
  if (gone != gone_.begin() && address - (--gone)->first < gone->second) Fault(what + ": use after free");
  Fault(what + ": not device memory");
}

void* DeviceBytes::Pin(size_t bytes) {
  void* address = std::malloc(bytes);
  if (address != nullptr) pinned_.emplace(reinterpret_cast<uintptr_t>(address), bytes);
  return address;
}

void DeviceBytes::Unpin(void* address) {
  if (pinned_.erase(reinterpret_cast<uintptr_t>(address)) == 0) Fault("free of host memory that is not pinned");
  std::free(address);
}

void DeviceBytes::CheckPinned(const void* address, size_t bytes, const std::string& what) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  auto found = pinned_.upper_bound(at);
  if (found == pinned_.begin()) Fault(what + ": host memory that is not pinned");
  --found;
  if (at + bytes > found->first + found->second) Fault(what + ": host memory that is not pinned");
}

}  // namespace coppice::gpu::fake
