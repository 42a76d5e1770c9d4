#include "kernels/gpu/fake/fake_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace coppice::gpu::fake {

namespace {

constexpr size_t kRange = size_t{1} << 42;  // 4 TiB of addresses
constexpr size_t kAlignment = 512;
// More than tests use of a block at its beginning. To fill cuBLASLt's 32 MiB whole, hundreds of times, took
// 15 s.
constexpr size_t kFilled = size_t{4} << 20;

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
  std::memset(block.data.get(), 0xFF, std::min(bytes, kFilled));  // NaN in every type of floats
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

std::byte* DeviceBytes::Use(uint64_t address, int64_t bytes, std::string_view what, std::string_view part) {
  auto found = live_.upper_bound(address);
  if (found == live_.begin()) FaultAt(address, what, part);
  --found;
  const uint64_t offset = address - found->first;
  if (offset + static_cast<uint64_t>(bytes) > found->second.bytes) FaultAt(address, what, part);
  return found->second.data.get() + offset;
}

void DeviceBytes::FaultAt(uint64_t address, std::string_view what, std::string_view part) const {
  const std::string where = std::string(what) + (part.empty() ? "" : ": ") + std::string(part);
  const auto holds = [&](const auto& blocks, auto&& bytes) {
    const auto next = blocks.upper_bound(address);
    return next != blocks.begin() && address - std::prev(next)->first < bytes(std::prev(next)->second);
  };
  if (holds(live_, [](const Block& block) { return block.bytes; }))
    Fault(where + ": beyond the end of its allocation");
  if (holds(gone_, [](size_t bytes) { return bytes; })) Fault(where + ": use after free");
  Fault(where + ": not device memory");
}

void* DeviceBytes::Pin(size_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return nullptr;
  pinned_.emplace(reinterpret_cast<uintptr_t>(address), bytes);
  return address;
}

void DeviceBytes::Unpin(void* address) {
  const auto found = pinned_.find(reinterpret_cast<uintptr_t>(address));
  if (found == pinned_.end()) Fault("free of host memory that is not pinned");
  // The pages go back, and the addresses stay reserved, without access.
  mmap(address, found->second, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  pinned_.erase(found);
}

void DeviceBytes::CheckPinned(const void* address, size_t bytes, const char* what) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  auto found = pinned_.upper_bound(at);
  if (found == pinned_.begin()) Fault(std::string(what) + ": host memory that is not pinned");
  --found;
  if (at + bytes > found->first + found->second)
    Fault(std::string(what) + ": host memory that is not pinned");
}

}  // namespace coppice::gpu::fake
