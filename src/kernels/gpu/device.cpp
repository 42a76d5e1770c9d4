#include "kernels/gpu/device.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace coppice::gpu {

namespace {

// Large enough that a transfer's start does not count beside its length: 8 MiB take 0.13 ms at 64 GB/s.
constexpr int64_t kSegmentBytes = int64_t{8} << 20;
constexpr size_t kSegments = 4;

size_t Size(int64_t bytes) { return static_cast<size_t>(bytes); }

// Copies rows of `width` bytes within the host.
void CopyHostRows(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride,
                  Device::Rows rows) {
  if (from_stride == rows.width && to_stride == rows.width) {
    std::memcpy(to, from, Size(rows.count * rows.width));
    return;
  }
  for (int64_t i = 0; i < rows.count; ++i)
    std::memcpy(to + i * to_stride, from + i * from_stride, Size(rows.width));
}

void SetSource(const std::byte* from, CUDA_MEMCPY2D& copy) {
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = from;
}
void SetSource(CUdeviceptr from, CUDA_MEMCPY2D& copy) {
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from;
}
void SetTarget(std::byte* to, CUDA_MEMCPY2D& copy) {
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = to;
}
void SetTarget(CUdeviceptr to, CUDA_MEMCPY2D& copy) {
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to;
}

// The description of a copy of rows; either side is memory of the host (std::byte*) or of the device.
template <typename From, typename To>
CUDA_MEMCPY2D RowsCopy(From from, int64_t from_stride, To to, int64_t to_stride, Device::Rows rows) {
  CUDA_MEMCPY2D copy = {};
  SetSource(from, copy);
  SetTarget(to, copy);
  copy.srcPitch = Size(from_stride);
  copy.dstPitch = Size(to_stride);
  copy.WidthInBytes = Size(rows.width);
  copy.Height = Size(rows.count);
  return copy;
}

// Calls fn(first row, first byte, rows) for parts of at most a segment. Rows that follow each other without a
// gap on both sides are one long row.
template <typename Fn>
void ForSegments(Device::Rows rows, bool contiguous, Fn&& fn) {
  if (contiguous) rows = {1, rows.count * rows.width};
  const int64_t width = std::min(rows.width, kSegmentBytes);
  for (int64_t byte = 0; byte < rows.width; byte += width) {
    const int64_t columns = std::min(width, rows.width - byte);
    const int64_t most = std::max<int64_t>(1, kSegmentBytes / columns);
    for (int64_t row = 0; row < rows.count; row += most)
      fn(row, byte, Device::Rows{std::min(most, rows.count - row), columns});
  }
}

}  // namespace

Device::Device(int ordinal) : ordinal_(ordinal) {
  try {
    Start();
  } catch (...) {
    Stop();
    throw;
  }
}

Device::~Device() { Stop(); }

void Device::Start() {
  const Driver& d = driver_;
  d.Check(d.cuInit(0), "starting the driver");
  int count = 0;
  d.Check(d.cuDeviceGetCount(&count), "counting devices");
  if (count == 0) throw Error("[gpu] there is no CUDA device");
  if (ordinal_ >= count) throw Error("[gpu] there is no device {}: there are {}", ordinal_, count);
  d.Check(d.cuDeviceGet(&device_, ordinal_), "opening the device");
  char name[256] = {};
  d.Check(d.cuDeviceGetName(name, sizeof(name) - 1, device_), "reading the device's name");
  name_ = name;
  const auto attribute = [&](int which) {
    int value = 0;
    d.Check(d.cuDeviceGetAttribute(&value, which, device_), "reading the device's properties");
    return value;
  };
  architecture_ = 10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                  attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  multiprocessors_ = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  if (attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) == 0)
    throw Error("[gpu] {} has no memory pools", name_);
  d.Check(d.cuDevicePrimaryCtxRetain(&context_, device_), "opening the device's context");
  Use();
  d.Check(d.cuDeviceGetDefaultMemPool(&pool_, device_), "opening the device's memory pool");
  uint64_t keep = ~uint64_t{0};  // memory that was freed stays in the pool for the next tensor
  d.Check(d.cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep),
          "setting up the memory pool");
  d.Check(d.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "making a stream");
  d.Check(d.cuStreamCreate(&side_stream_, CU_STREAM_NON_BLOCKING), "making a stream");
  d.Check(d.cuStreamCreate(&copies_, CU_STREAM_NON_BLOCKING), "making a stream");
  d.Check(d.cuEventCreate(&order_, CU_EVENT_DISABLE_TIMING), "making an event");
  recorder_ = std::make_unique<GraphRecorder>(driver_, stream_);
}

// In the reverse order of Start. An error cannot be reported from here, and changes nothing.
void Device::Stop() noexcept {
  const Driver& d = driver_;
  if (context_ == nullptr) return;
  d.cuCtxSetCurrent(context_);
  recorder_.reset();  // ends a step that an error left open
  FreeDeferred();
  if (copies_ != nullptr) d.cuStreamSynchronize(copies_);
  if (stream_ != nullptr) d.cuStreamSynchronize(stream_);
  if (order_ != nullptr) d.cuEventDestroy(order_);
  for (Segment& segment : segments_) {
    if (segment.ended != nullptr) d.cuEventDestroy(segment.ended);
  }
  segments_.clear();
  for (CUmodule module : modules_) d.cuModuleUnload(module);
  if (copies_ != nullptr) d.cuStreamDestroy(copies_);
  if (side_stream_ != nullptr) d.cuStreamDestroy(side_stream_);
  if (stream_ != nullptr) d.cuStreamDestroy(stream_);
  if (pool_ != nullptr) d.cuMemPoolTrimTo(pool_, 0);
  d.cuDevicePrimaryCtxRelease(device_);
}

void Device::Use() {
  driver_.Check(driver_.cuCtxSetCurrent(context_), "using the device");
  if (recorder_ == nullptr) return;
  if (OwnsStep()) {
    if (step_error_) std::rethrow_exception(step_error_);
    return recorder_->Resume();
  }
  try {
    recorder_->Flush();
  } catch (...) {  // the calling thread lost nothing
    step_error_ = std::current_exception();
  }
}

void Device::Resume() {
  if (OwnsStep()) recorder_->Resume();
}

void Device::FreeDeferred() {
  for (const CUdeviceptr address : std::exchange(freed_, {})) driver_.cuMemFreeAsync(address, stream_);
}

CUdeviceptr Device::Allocate(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  Use();
  // An allocation that was recorded would be made anew by every start of the graph.
  if (!recorder_->recording()) return AllocateOn(stream_, bytes);
  const CUdeviceptr address = AllocateOn(side_stream_, bytes);
  const CUresult ended = driver_.cuStreamSynchronize(side_stream_);
  if (ended != CUDA_SUCCESS) driver_.cuMemFreeAsync(address, side_stream_);
  driver_.Check(ended, "allocating device memory");
  return address;
}

CUdeviceptr Device::AllocateOn(CUstream stream, int64_t bytes) {
  CUdeviceptr address = 0;
  const CUresult result = driver_.cuMemAllocAsync(&address, Size(std::max<int64_t>(bytes, 1)), stream);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    throw Error("[gpu] {} bytes do not fit into the memory of {}: {} bytes are free", bytes, name_,
                FreeBytes());
  }
  driver_.Check(result, "allocating device memory");
  return address;
}

void Device::Free(CUdeviceptr address) noexcept {
  const std::lock_guard lock(mutex_);
  if (driver_.cuCtxSetCurrent(context_) != CUDA_SUCCESS) return;
  if (recorder_->recording()) {
    freed_.push_back(address);  // what is recorded may use it
  } else {
    driver_.cuMemFreeAsync(address, stream_);
  }
}

void Device::Order(CUstream first, CUstream then) {
  driver_.Check(driver_.cuEventRecord(order_, first), "recording an event");
  driver_.Check(driver_.cuStreamWaitEvent(then, order_, 0), "ordering two streams");
}

CUdeviceptr Device::AllocateForCopies(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  Use();
  return AllocateOn(copies_, bytes);
}

void Device::FreeAfterCopies(CUdeviceptr address) noexcept {
  const std::lock_guard lock(mutex_);
  if (driver_.cuCtxSetCurrent(context_) == CUDA_SUCCESS) driver_.cuMemFreeAsync(address, copies_);
}

void Device::WaitForCopies() noexcept {
  const std::lock_guard lock(mutex_);
  if (driver_.cuCtxSetCurrent(context_) == CUDA_SUCCESS) driver_.cuStreamSynchronize(copies_);
}

int64_t Device::FreeBytes() {
  const std::lock_guard lock(mutex_);
  Use();
  size_t free = 0;
  size_t total = 0;
  driver_.Check(driver_.cuMemGetInfo(&free, &total), "reading the free memory");
  uint64_t reserved = 0;
  uint64_t used = 0;
  driver_.Check(driver_.cuMemPoolGetAttribute(pool_, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved),
                "reading the free memory");
  driver_.Check(driver_.cuMemPoolGetAttribute(pool_, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used),
                "reading the free memory");
  return static_cast<int64_t>(free + (reserved - used));
}

// Space in pinned memory for one transfer, which must be started before the next call.
std::byte* Device::Stage(int64_t bytes) {
  COPPICE_CHECK(bytes <= kSegmentBytes);
  if (segments_.empty()) segments_.resize(kSegments);
  if (staged_ + bytes > kSegmentBytes) {
    recorder_->Flush();
    Segment& full = segments_[segment_];
    driver_.Check(driver_.cuEventRecord(full.ended, stream_), "recording an event");
    full.in_use = true;
    segment_ = (segment_ + 1) % segments_.size();
    staged_ = 0;
    Segment& next = segments_[segment_];
    if (std::exchange(next.in_use, false))
      driver_.Check(driver_.cuEventSynchronize(next.ended), "waiting for a transfer");
    Resume();
  }
  Segment& segment = segments_[segment_];
  if (!segment.memory) segment.memory = std::make_unique<Pinned>(*this, kSegmentBytes);
  if (segment.ended == nullptr)
    driver_.Check(driver_.cuEventCreate(&segment.ended, CU_EVENT_DISABLE_TIMING), "making an event");
  std::byte* place = segment.memory->data() + staged_;
  staged_ = std::min((staged_ + bytes + 255) / 256 * 256, kSegmentBytes);
  return place;
}

void Device::Upload(const std::byte* from, int64_t from_stride, CUdeviceptr to, int64_t to_stride,
                    Rows rows) {
  const std::lock_guard lock(mutex_);
  Use();
  const bool contiguous = from_stride == rows.width && to_stride == rows.width;
  ForSegments(rows, contiguous, [&](int64_t row, int64_t byte, Rows part) {
    std::byte* staged = Stage(part.count * part.width);
    CopyHostRows(from + row * from_stride + byte, from_stride, staged, part.width, part);
    const CUdeviceptr at = to + static_cast<CUdeviceptr>(row * to_stride + byte);
    if (part.count == 1 || to_stride == part.width) {
      driver_.Check(driver_.cuMemcpyHtoDAsync(at, staged, Size(part.count * part.width), stream_),
                    "copying to the device");
      return;
    }
    const CUDA_MEMCPY2D copy = RowsCopy(staged, part.width, at, to_stride, part);
    driver_.Check(driver_.cuMemcpy2DAsync(&copy, stream_), "copying to the device");
  });
}

void Device::Download(CUdeviceptr from, int64_t from_stride, std::byte* to, int64_t to_stride, Rows rows) {
  const std::lock_guard lock(mutex_);
  Use();
  const bool contiguous = from_stride == rows.width && to_stride == rows.width;
  ForSegments(rows, contiguous, [&](int64_t row, int64_t byte, Rows part) {
    std::byte* staged = Stage(part.count * part.width);
    const CUdeviceptr at = from + static_cast<CUdeviceptr>(row * from_stride + byte);
    if (part.count == 1 || from_stride == part.width) {
      driver_.Check(driver_.cuMemcpyDtoHAsync(staged, at, Size(part.count * part.width), stream_),
                    "copying from the device");
    } else {
      const CUDA_MEMCPY2D copy = RowsCopy(at, from_stride, staged, part.width, part);
      driver_.Check(driver_.cuMemcpy2DAsync(&copy, stream_), "copying from the device");
    }
    Synchronize();
    CopyHostRows(staged, part.width, to + row * to_stride + byte, to_stride, part);
  });
}

void Device::Copy(CUdeviceptr from, int64_t from_stride, CUdeviceptr to, int64_t to_stride, Rows rows) {
  const std::lock_guard lock(mutex_);
  Use();
  if (rows.count == 1 || (from_stride == rows.width && to_stride == rows.width)) {
    driver_.Check(driver_.cuMemcpyDtoDAsync(to, from, Size(rows.count * rows.width), stream_),
                  "copying within the device");
    return;
  }
  const CUDA_MEMCPY2D copy = RowsCopy(from, from_stride, to, to_stride, rows);
  driver_.Check(driver_.cuMemcpy2DAsync(&copy, stream_), "copying within the device");
}

void Device::Zero(CUdeviceptr to, int64_t stride, Rows rows) {
  const std::lock_guard lock(mutex_);
  Use();
  if (stride == rows.width || rows.count == 1) rows = {1, rows.count * rows.width};
  driver_.Check(driver_.cuMemsetD2D8Async(to, Size(std::max(stride, rows.width)), 0, Size(rows.width),
                                          Size(rows.count), stream_),
                "clearing device memory");
}

void Device::Synchronize() {
  const std::lock_guard lock(mutex_);
  Use();
  recorder_->Flush();
  FreeDeferred();
  driver_.Check(driver_.cuStreamSynchronize(stream_), "computing");
  Resume();
}

void Device::BeginStep() {
  const std::lock_guard lock(mutex_);
  Use();
  if (step_thread_ != std::thread::id()) return;
  recorder_->Begin();
  step_thread_ = std::this_thread::get_id();
  step_error_ = nullptr;
}

void Device::EndStep() {
  const std::lock_guard lock(mutex_);
  if (!OwnsStep()) return;
  step_thread_ = {};
  const std::exception_ptr error = std::exchange(step_error_, nullptr);
  driver_.Check(driver_.cuCtxSetCurrent(context_), "using the device");
  recorder_->End();
  FreeDeferred();
  if (error) std::rethrow_exception(error);
}

void Device::Launch(CUfunction function, const LaunchShape& s, std::span<void*> parameters) {
  driver_.Check(driver_.cuLaunchKernel(function, s.grid[0], s.grid[1], s.grid[2], s.threads, 1, 1,
                                       s.shared_bytes, stream_, parameters.data(), nullptr),
                "starting a kernel");
}

CUmodule Device::LoadModule(const void* image) {
  const std::lock_guard lock(mutex_);
  Use();
  CUmodule module = nullptr;
  recorder_->Flush();  // loading may wait for the device, which nothing may do while a stream records
  driver_.Check(driver_.cuModuleLoadData(&module, image), "loading kernels");
  modules_.push_back(module);
  Resume();
  return module;
}

Device::Pinned::Pinned(Device& device, int64_t bytes) : device_(device), bytes_(bytes) {
  const Driver& d = device_.driver();
  d.Check(d.cuCtxSetCurrent(device_.context_), "using the device");
  void* address = nullptr;
  d.Check(d.cuMemHostAlloc(&address, Size(bytes), 0), "allocating pinned memory");
  data_ = static_cast<std::byte*>(address);
}

Device::Pinned::~Pinned() {
  if (device_.driver().cuCtxSetCurrent(device_.context_) == CUDA_SUCCESS)
    device_.driver().cuMemFreeHost(data_);
}

}  // namespace coppice::gpu
