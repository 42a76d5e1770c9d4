#include "kernels/gpu/gpu.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/gpu/operands.h"
#include "kernels/gpu/pinned_store.h"

namespace coppice::gpu {

namespace {

std::byte* DataAt(CUdeviceptr address) { return reinterpret_cast<std::byte*>(address); }

Device::Rows RowsOf(const TensorView& v) { return {v.rows, BytesOf(v.dtype, v.cols)}; }

bool Overlap(const TensorView& a, const TensorView& b) {
  const auto end = [](const TensorView& v) {
    return v.data + (v.rows - 1) * v.stride + BytesOf(v.dtype, v.cols);
  };
  return a.data < end(b) && b.data < end(a);
}

}  // namespace

// ---- Heap

std::byte* Heap::Allocate(int64_t bytes) { return DataAt(gpu_.device().Allocate(bytes)); }
void Heap::Free(std::byte* data) noexcept {
  if (holds_ == Holds::kWeights) gpu_.Forget(data);
  gpu_.device().Free(AddressOf(data));
}

void Heap::Copy(const TensorView& from, const MutableTensorView& to) {
  COPPICE_CHECK(holds_ == Holds::kTensors);
  COPPICE_CHECK(from.dtype == to.dtype && from.rows == to.rows && from.cols == to.cols);
  COPPICE_CHECK((from.memory == nullptr || from.memory == this) &&
                (to.memory == nullptr || to.memory == this));
  if (from.empty()) return;
  Device& device = gpu_.device();
  const Device::Rows rows = RowsOf(from);
  if (from.memory == nullptr)
    return device.Upload(from.data, from.stride, AddressOf(to.data), to.stride, rows);
  if (to.memory == nullptr)
    return device.Download(AddressOf(from.data), from.stride, to.data, to.stride, rows);
  if (!Overlap(from, to))
    return device.Copy(AddressOf(from.data), from.stride, AddressOf(to.data), to.stride, rows);
  Operands op(gpu_);
  const CUdeviceptr aside = op.Scratch(rows.count * rows.width);
  device.Copy(AddressOf(from.data), from.stride, aside, rows.width, rows);
  device.Copy(aside, rows.width, AddressOf(to.data), to.stride, rows);
}

// Moves the widest units that divide a row and all addresses.
void Heap::Gather(const TensorView& from, std::span<const int32_t> rows, const MutableTensorView& to) {
  COPPICE_CHECK(holds_ == Holds::kTensors);
  COPPICE_CHECK(from.memory == this && to.memory == this && from.dtype == to.dtype && from.cols == to.cols);
  COPPICE_CHECK(to.rows == std::ssize(rows));
  COPPICE_CHECK(std::ranges::all_of(rows, [&](int32_t row) { return row >= 0 && row < from.rows; }));
  if (TensorView(to).empty()) return;
  Operands op(gpu_);
  const Device::Rows moved = RowsOf(to);
  const bool aside = Overlap(from, to);
  const CUdeviceptr target = aside ? op.Scratch(moved.count * moved.width) : AddressOf(to.data);
  const int64_t stride = aside ? moved.width : to.stride;
  const auto divides = [&](int64_t unit) {
    return moved.width % unit == 0 && from.stride % unit == 0 && stride % unit == 0 &&
           AddressOf(from.data) % static_cast<CUdeviceptr>(unit) == 0 &&
           target % static_cast<CUdeviceptr>(unit) == 0;
  };
  const int64_t unit = divides(4) ? 4 : divides(2) ? 2 : 1;
  gpu_.kernels().Launch(unit == 4   ? "gather_32"
                        : unit == 2 ? "gather_16"
                                    : "gather_8",
                        {moved.count, CeilDiv(moved.width / unit, 1024)}, AddressOf(from.data), op.List(rows),
                        target, moved.width / unit, from.stride / unit, stride / unit);
  if (aside) gpu_.device().Copy(target, stride, AddressOf(to.data), to.stride, moved);
}

void Heap::Zero(const MutableTensorView& to) {
  COPPICE_CHECK(holds_ == Holds::kTensors);
  if (TensorView(to).empty()) return;
  gpu_.device().Zero(AddressOf(to.data), to.stride, RowsOf(to));
}

std::unique_ptr<RecordStore> Heap::OpenRecordStore(int64_t record_bytes) {
  COPPICE_CHECK(holds_ == Holds::kTensors);
  return std::make_unique<PinnedStore>(gpu_, record_bytes);
}

// ---- Arena

Arena::~Arena() {
  for (const Block& block : blocks_) device_.Free(block.address);
}

CUdeviceptr Arena::Take(int64_t bytes) {
  bytes = std::max<int64_t>(CeilDiv(bytes, 256) * 256, 256);
  while (at_.block < blocks_.size() && at_.used + bytes > blocks_[at_.block].bytes) at_ = {at_.block + 1, 0};
  if (at_.block == blocks_.size()) {
    constexpr int64_t kLeast = int64_t{4} << 20;
    const int64_t size = std::max(bytes, blocks_.empty() ? kLeast : blocks_.back().bytes);
    blocks_.push_back({device_.Allocate(size), size});
  }
  const CUdeviceptr address = blocks_[at_.block].address + static_cast<CUdeviceptr>(at_.used);
  at_.used += bytes;
  return address;
}

void Arena::Release(const Mark& mark) {
  at_ = mark;
  if (mark.block > 0 || mark.used > 0 || blocks_.size() < 2) return;
  int64_t bytes = 0;
  for (const Block& block : std::exchange(blocks_, {})) {
    bytes += block.bytes;
    device_.Free(block.address);
  }
  try {
    blocks_.push_back({device_.Allocate(bytes), bytes});
  } catch (...) {  // called by a destructor; the next Take says what is wrong
  }
}

// ---- Gpu

std::shared_ptr<Gpu> Gpu::Open() {
  static std::mutex mutex;
  static std::weak_ptr<Gpu> open;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Gpu> gpu = open.lock();
  if (!gpu) {
    gpu = std::shared_ptr<Gpu>(new Gpu);
    open = gpu;
  }
  return gpu;
}

Gpu::Gpu() = default;

Gpu::~Gpu() {
  if (cached_address_ != 0) device_.Free(cached_address_);
}

Gpu::Placed Gpu::Place(const TensorView& w) {
  if (w.memory != nullptr) {
    const HostRows host(w);
    return Place(host.view());
  }
  const WeightLayout layout = LayoutOf(w.dtype, w.rows, w.cols);
  std::vector<std::byte> packed(static_cast<size_t>(layout.bytes));
  Repack(w, layout, packed);
  Placed placed{Tensor(DType::kF32, 1, layout.bytes / 4, &weight_heap_), {}};
  const std::byte* data = placed.storage.view().data;
  device_.Upload(packed.data(), layout.bytes, AddressOf(data), layout.bytes, {1, layout.bytes});
  // The stride is 0, so a part of the view is no view of a weight.
  placed.view = {data, w.dtype, w.rows, w.cols, 0, &weight_heap_};
  const std::lock_guard lock(placed_mutex_);
  placed_.emplace(data, PlacedShape{w.dtype, w.rows, w.cols, layout});
  return placed;
}

const WeightLayout& Gpu::LayoutOfPlaced(const TensorView& w) const {
  const std::lock_guard lock(placed_mutex_);
  const auto found = placed_.find(w.data);
  COPPICE_CHECK(IsPlaced(w) && found != placed_.end());
  const PlacedShape& shape = found->second;
  COPPICE_CHECK(shape.dtype == w.dtype && shape.rows == w.rows && shape.cols == w.cols);
  return shape.layout;
}

void Gpu::Forget(const std::byte* data) noexcept {
  const std::lock_guard lock(placed_mutex_);
  placed_.erase(data);
}

CUdeviceptr Gpu::CachedList(std::span<const int32_t> list) {
  // A copy that was recorded may be lost with its graph.
  if (std::exchange(cached_lost_, device_.recorder().lost()) != device_.recorder().lost()) cached_.clear();
  const size_t common = std::min(list.size(), cached_.size());
  const bool same =
      std::equal(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(common), cached_.begin());
  if (same && list.size() <= cached_.size()) return cached_address_;
  const auto count = static_cast<int64_t>(list.size());
  int64_t kept = same ? static_cast<int64_t>(cached_.size()) : 0;
  cached_.clear();  // nothing, if a call below fails
  if (count > cached_capacity_) {
    const int64_t capacity = std::max<int64_t>(count + count / 2, 4096);
    const CUdeviceptr grown = device_.Allocate(capacity * 4);
    if (cached_address_ != 0) device_.Free(cached_address_);
    cached_address_ = grown;
    cached_capacity_ = capacity;
    kept = 0;
  }
  const int64_t bytes = (count - kept) * 4;
  device_.Upload(reinterpret_cast<const std::byte*>(list.data() + kept), bytes,
                 cached_address_ + static_cast<CUdeviceptr>(kept * 4), bytes, {1, bytes});
  cached_.assign(list.begin(), list.end());
  return cached_address_;
}

}  // namespace coppice::gpu
